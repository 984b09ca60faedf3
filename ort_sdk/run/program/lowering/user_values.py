"""Feeds in buffers: small values of the user are copied to arrays that stay, since only calls on those can be joined."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np

from ort_sdk.plan import Feed
from ort_sdk.run.program.device_outline import described_value
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .buffers import (
    DEVICE_COPIED_BYTES_IN_ALL,
    BoundSteps,
    CopyBudget,
    DeviceValue,
    allocated_for,
    fix_buffer,
    is_moving_value,
)
from .device_views import described_bytes
from .liveness import DEVICE_COPIED_BYTES
from .owners import host_provider, is_upload, owner_of

__all__ = ["FeedStaging"]


class FeedStaging:
    """Gives buffers to small feeds that bound steps read, and no fetch keeps: no step reads slots for them then.

    One that kernels read anywhere as fast, or may overwrite for the user, stays where it is.

    Args:
        specialisation: the program's steps.
        providers: provider name → what binding needs.
        escaping: values that the user may get as they are.
    """

    def __init__(
        self, specialisation: Specialisation, providers: Mapping[str, BindingProvider], escaping: Container[int]
    ) -> None:
        self._specialisation, self._providers = specialisation, providers
        self._feeds = [feed for feed in specialisation.plan.feeds if self._may_stage(feed, escaping)]

    def choose(self, bound_positions: Container[int]) -> dict[int, BindingProvider]:
        """Feeds that get buffers, and the providers in whose memory those are.

        Args:
            bound_positions: of the steps that will be bound.
        """
        copies, device_copies = CopyBudget(), CopyBudget(DEVICE_COPIED_BYTES, DEVICE_COPIED_BYTES_IN_ALL)
        found = {}
        for feed in self._feeds:
            value = self._specialisation.values[feed.index]
            readers = self._readers(feed.index)
            is_on_host = isinstance(value, np.ndarray)
            provider = self._host_memory(readers, bound_positions) if is_on_host else self._device_memory(readers)
            budget = copies if is_on_host else device_copies
            if provider is not None and budget.take(described_bytes(provider, value)):
                found[feed.index] = provider
        return found

    def stage(self, chosen: Mapping[int, BindingProvider], bound: BoundSteps) -> None:
        """Make the buffers of those on the host."""
        for index, provider in chosen.items():
            if provider.device.is_cpu:
                value = self._specialisation.values[index]
                buffer = allocated_for(value, provider)
                fix_buffer(index, buffer, described_value(provider.execution_provider, value)[0], bound)
                bound.feeds.add(index)
                bound.memory.append(buffer)

    def on_devices(self, chosen: Mapping[int, BindingProvider], held: Mapping[int, int]) -> Iterator[DeviceValue]:
        """Those on devices, which are there from the start.

        Args:
            chosen: feeds that get buffers.
            held: value → last step that may touch it.
        """
        for index, provider in chosen.items():
            if not provider.device.is_cpu:
                described = described_value(provider.execution_provider, self._specialisation.values[index])
                yield DeviceValue(index, *described, provider, first=0, last=held[index])

    def _may_stage(self, feed: Feed, escaping: Container[int]) -> bool:
        specialisation, index = self._specialisation, feed.index
        value = specialisation.values[index]
        if index in specialisation.constants or index in specialisation.dynamic_feeds:
            return False
        if index in escaping or index in specialisation.fetches or not hasattr(value, "shape"):
            return False
        is_object = isinstance(value, np.ndarray) and value.dtype.hasobject
        return not is_object and not is_moving_value(index, value, specialisation)

    def _readers(self, index: int) -> list[tuple[int, ProgramStep]]:
        steps = enumerate(self._specialisation.steps)
        return [(position, launched) for position, launched in steps if index in launched.inputs and launched.guard is None]

    def _host_memory(self, readers: list[tuple[int, ProgramStep]], bound_positions: Container[int]) -> BindingProvider | None:
        """A provider on the host, if all readers are there, or copy to a device by bound calls."""
        for position, launched in readers:
            owner = owner_of(launched, self._providers)
            if owner is None or not (owner.device.is_cpu or (is_upload(launched) and position in bound_positions)):
                return None
        names = [launched.step.provider for _, launched in readers if launched.step.provider in self._providers]
        return self._providers[min(names)] if names else host_provider(self._providers) if readers else None

    def _device_memory(self, readers: list[tuple[int, ProgramStep]]) -> BindingProvider | None:
        """The provider of all readers, if it copies values of the user."""
        owners = [owner_of(launched, self._providers) for _, launched in readers]
        owner = owners[0] if owners else None
        if owner is None or owner.device.is_cpu or any(each is not owner for each in owners):
            return None
        return owner if owner.copies_user_values else None
