"""Results of runs on bound values: each brought to where it is wanted, with one wait for all that go to the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ort_sdk.api import Array, InvalidArgument, OrtDevice
from ort_sdk.memory import DataTransferManager
from ort_sdk.run import Targets
from ort_sdk.session.providers.device_memory import DeviceAccess
from ort_sdk.session.providers.readiness import Ready
from ort_sdk.session.values.ort_value import OrtValue

from .fetches import HELD_ONCE, hand_out

__all__ = ["Deliveries", "Delivery", "check_fits"]


class Delivery(NamedTuple):
    """Where one result goes."""

    name: str
    fetch: int
    """Position of the fetch."""
    target: OrtValue | None
    """Memory of the caller; None if the session makes it."""
    made_in: DeviceAccess
    wanted_in: DeviceAccess
    type: str
    is_owned: bool
    """Whether a step makes it afresh."""
    is_last: bool
    """Whether no further output is the same fetch."""
    may_be_there: bool
    """Whether a kernel may have written it into the caller's memory, because that is an input's, too."""
    queue: int
    """Position of the provider whose queued work makes it, among those of the session; -1 if all work is done."""

    @property
    def goes_to_host(self) -> bool:
        """Whether it comes from a device to the host."""
        return self.wanted_in.provider is None and self.made_in.provider is not None

    @property
    def stays(self) -> bool:
        """Whether it is made afresh on the device on which it is wanted, which is not the host."""
        return self.is_owned and self.made_in.provider is not None and self.made_in.device == self.wanted_in.device


class Deliveries:
    """Where the results of runs go.

    Args:
        outputs: in the order in which the caller gets them.
        transfers: copies between devices.
    """

    def __init__(self, outputs: Sequence[Delivery], transfers: DataTransferManager) -> None:
        self._outputs, self._transfers = tuple(outputs), transfers
        self._places = [(each.target, each.wanted_in, each.type, each.queue) for each in outputs]
        self._handed_over: list[tuple[int, int]] = []
        self._fills: list[tuple[Delivery, OrtValue, Array, Callable[[Array, Array], None]]] = []
        self._downloads: dict[OrtDevice, list[tuple[int, Delivery]]] = {}
        self._others: list[tuple[int, Delivery]] = []
        for position, each in enumerate(outputs):
            fill = transfers.filler(each.made_in.device, each.wanted_in.device) if each.stays and each.target else None
            if each.stays and each.target is None:
                self._handed_over.append((position, each.fetch))
            elif fill is not None and each.target is not None:
                self._fills.append((each, each.target, each.target.value, fill))
            elif each.goes_to_host:
                self._downloads.setdefault(each.made_in.device, []).append((position, each))
            else:
                self._others.append((position, each))
        self._fills_several = sum(each.target is not None for each in outputs) > 1

    @property
    def go_to_host(self) -> bool:
        """Whether some come from a device to the host."""
        return bool(self._downloads)

    def targets(self, count: int) -> Targets | None:
        """Memory of the caller's that a run may leave results in by itself, by fetch; None if there is none.

        Not where a result may be a view of a feed: that memory may be the feed's, and is to be filled last.

        Args:
            count: of fetches.
        """
        if not self._fills or not all(each.is_owned for each in self._outputs):
            return None
        arrays: list[Array | None] = [None] * count
        for each, _, array, _ in self._fills:
            arrays[each.fetch] = array
        return Targets(arrays)

    def place(self, results: list[Array]) -> list[Array]:
        """Bring results where they are wanted, in memory of their own or the caller's; inside the scope of the run.

        Args:
            results: of the run, by fetch; nobody else keeps the list.

        Returns:
            By output, what the session made; None where the caller's memory has it.
        """
        placed: list[Array] = [None] * len(self._outputs)
        for position, index in self._handed_over:
            # A program may keep a result that is the same in every run.
            if sys.getrefcount(results[index]) <= HELD_ONCE:
                placed[position] = results[index]
            else:
                placed[position] = self._copied(results[index], self._outputs[position])
        contents = [(position, each, self._own(results, each)) for position, each in self._others]
        for source, downloads in self._downloads.items():
            self._download(results, source, downloads, placed)
        # Only now: results above may be views of feeds, and the memory that is filled may be a feed's.
        for position, each, value in contents:
            if each.target is None:
                placed[position] = value
            elif not each.target.holds(value):
                self._fill(each.target, value, each)
        for each, target, array, fill in self._fills:
            value = results[each.fetch]
            if value is not array and not (each.may_be_there and target.holds(value)):
                check_fits(target, value, each.made_in, each.type, each.name)
                fill(value, array)
        return placed

    def values(self, placed: list[Array], ready: Sequence[Ready | None]) -> list[OrtValue]:
        """The outputs as the caller gets them.

        Args:
            placed: as ``place`` gave them.
            ready: by queue, when it is done; the last is None, for results that are.
        """
        wrap = OrtValue.wrap
        return [
            wrap(value, access, type_string, ready[queue]) if target is None else target
            for value, (target, access, type_string, queue) in zip(placed, self._places, strict=True)
        ]

    def _own(self, results: list[Array], each: Delivery) -> Array:
        """A result that is not a view of a feed's memory that may be filled, where it is wanted if the session makes it."""
        value = results[each.fetch]
        if each.target is not None:
            is_safe = each.is_owned or (each.made_in.provider is None and not self._fills_several)
            return value if is_safe or each.target.holds(value) else self._copied_where_made(value, each)
        if each.made_in.provider is None and each.wanted_in.provider is None:
            wanted = [value]
            del value
            if each.is_last:
                # No other list may hold it: what is held here only is handed out without a copy.
                results[each.fetch] = None
            return hand_out(wanted)[0]
        return self._copied(value, each)

    def _copied(self, value: Array, each: Delivery) -> Array:
        return self._transfers.copy(value, each.made_in.device, each.wanted_in.device)

    def _copied_where_made(self, value: Array, each: Delivery) -> Array:
        if each.made_in.provider is None:
            return hand_out([value])[0]
        return self._transfers.copy(value, each.made_in.device, each.made_in.device)

    def _fill(self, target: OrtValue, value: Array, each: Delivery) -> None:
        """Put a result into the caller's memory."""
        check_fits(target, value, each.made_in, each.type, each.name)
        if each.made_in.provider is None and each.wanted_in.provider is None:
            target.overwrite(OrtValue.wrap(value, each.made_in, each.type))
        elif not self._transfers.copy_into(value, each.made_in.device, target.value, each.wanted_in.device):
            target.replace(self._copied(value, each))

    def _download(
        self, results: list[Array], source: OrtDevice, downloads: Sequence[tuple[int, Delivery]], placed: list[Array]
    ) -> None:
        """Copy results to the host, into the caller's memory where there is some."""
        values = [results[each.fetch] for _, each in downloads]
        destinations = []
        for value, (_, each) in zip(values, downloads, strict=True):
            if each.target is not None:
                check_fits(each.target, value, each.made_in, each.type, each.name)
            destinations.append(None if each.target is None else each.target.value)
        copied = self._transfers.copy_all(values, source, destinations)
        for value, (position, each) in zip(copied, downloads, strict=True):
            if each.target is None:
                placed[position] = value


def check_fits(target: OrtValue, value: Array, access: DeviceAccess, type_string: str, name: str) -> None:
    """Refuse an output that given memory cannot hold.

    Args:
        target: the memory.
        value: the output.
        access: where it is.
        type_string: its ONNX type, if known.
        name: of the output.

    Raises:
        InvalidArgument: the output has another type or shape.
    """
    memory = target.value
    if getattr(memory, "shape", None) == getattr(value, "shape", ()) and memory.dtype == value.dtype:
        return
    made = OrtValue.wrap(value, access, type_string)
    if target.shape() != made.shape() or target.data_type() != made.data_type():
        raise InvalidArgument(
            f"The output OrtValue provided for output '{name}' is {target.data_type()}{target.shape()} but this run computed "
            f"{made.data_type()}{made.shape()}. Bind the output to a device instead, or memory of the shape each run makes."
        )
