"""Feeds that stay what they are from run to run: values are bound, and read and checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, OrtDevice
from ort_sdk.memory import DataTransferManager
from ort_sdk.plan import Feed
from ort_sdk.run import FixedSignature, signature_of
from ort_sdk.session.values.ort_value import OrtValue

from .feeds import FeedReader

__all__ = ["BoundFeeds", "bound_feeds"]


class BoundFeeds:
    """The same arrays in each run, copied in each to where the plan wants them.

    Args:
        arrays: in the order of the plan's feeds; None for one left at its default.
        copies: (position, device it is on, device it is wanted on) of those to be copied.
        transfers: makes the copies.
    """

    def __init__(
        self, arrays: list[Array], copies: Sequence[tuple[int, OrtDevice, OrtDevice]], transfers: DataTransferManager
    ) -> None:
        self._arrays, self._copies, self._transfers = arrays, copies, transfers
        self._signature: FixedSignature | None = None
        self.reads_host = any(source == CPU_DEVICE for _, source, _ in copies)
        """Whether a device reads arrays of the caller's on the host."""

    def read(self) -> tuple[list[Array], FixedSignature | None]:
        """The feeds of one run, and their signature, which is that of all runs."""
        feeds = self._arrays
        if self._copies:
            feeds = feeds.copy()
            for position, source, target in self._copies:
                feeds[position] = self._transfers.copy(feeds[position], source, target)
        if self._signature is None:
            found = signature_of(feeds)
            self._signature = None if found is None else FixedSignature(found)
        return feeds, self._signature


def bound_feeds(
    feeds: Sequence[Feed], reader: FeedReader, given: Mapping[str, OrtValue], transfers: DataTransferManager
) -> BoundFeeds | None:
    """Feeds of tensors of numbers that are taken as they are; None if others are among them.

    Args:
        feeds: the plan's.
        reader: checks values.
        given: what is bound: input name → value.
        transfers: copies to other devices.
    """
    arrays: list[Array] = []
    copies = []
    for position, (feed, (array, source)) in enumerate(zip(feeds, reader.converted(given), strict=True)):
        lasting = None if array is None else _lasting(array, given[feed.name])
        if lasting is None and array is not None:
            return None
        if lasting is not None and source != feed.device:
            copies.append((position, source, feed.device))
        arrays.append(lasting)
    return BoundFeeds(arrays, copies, transfers)


def _lasting(array: Array, value: OrtValue) -> Any:
    """An array of what a value is; None if it may be another one in the next run."""
    if array is not value.value or not value.is_tensor():
        return None
    if value.device is not CPU_DEVICE:
        return array
    # Shape and type stay what they are now, whatever is done to the caller's array.
    return array.view() if type(array) is np.ndarray and not array.dtype.hasobject else None
