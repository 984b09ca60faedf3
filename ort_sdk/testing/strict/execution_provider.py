"""Strict devices in sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import Event, ExecutionProvider, TensorElementType
from ort_sdk.testing.device_counts import counted_join

from .allocator import RunBlocks
from .memory import StrictArray, StrictDevice
from .sharing import DLPACK_TYPE, StrictCapsule, array_of

__all__ = ["STRICT_PROVIDER", "SeparateStrictExecutionProvider", "StrictExecutionProvider"]

STRICT_PROVIDER = "StrictExecutionProvider"


class StrictExecutionProvider(ExecutionProvider):
    """One strict device in one session."""

    dlpack_device_type = DLPACK_TYPE

    def __init__(self, strict_device: StrictDevice, options: Mapping[str, str]) -> None:
        super().__init__(STRICT_PROVIDER, strict_device.device, options)
        self.strict_device = strict_device
        self.blocks = RunBlocks()

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[None]:
        """Scope of one run; its exit waits for the queue and raises the first error of its work."""
        with self.strict_device.queue.scope(), self.blocks.run():
            yield

    def describe(self, array: Any) -> tuple[TensorElementType, tuple[int, ...]]:
        """Element type and shape; waits for the work that decides them."""
        self.strict_device.cell_of(array, "describe")
        return super().describe(array)

    def shares_memory(self, first: Any, second: Any, *, entirely: bool = False) -> bool:
        """Whether two arrays of the device have bytes in common, for which the work that makes them is waited for."""
        cells = [self.strict_device.cell_of(array, "shares_memory") for array in (first, second)]
        if entirely:
            return cells[0].begins_with(cells[1])
        self.describe(first)
        self.describe(second)
        return cells[0].overlaps(cells[1])

    def wrap_memory(self, address: int, shape: tuple[int, ...], element_type: TensorElementType, owner: Any) -> StrictArray:
        """An array of memory that was lent to the device."""
        return self.strict_device.wrapped(address, shape, element_type, owner)

    def to_dlpack(self, array: Any, stream: Any, ready: Event | None) -> StrictCapsule:
        """The array itself, and what the consumer's stream is to wait for."""
        self.strict_device.cell_of(array, "to_dlpack")
        return StrictCapsule(array, stream, ready)

    def from_dlpack(self, tensor: Any) -> StrictArray:
        """An array of the same memory."""
        return array_of(tensor, self.strict_device)

    def reshaped(self, array: Any, shape: Sequence[int]) -> StrictArray:
        """A view of the array's memory, which is only read."""
        return self.strict_device.viewed(array, lambda memory: memory.reshape(tuple(shape)))

    def outer_range(self, array: Any, start: int, stop: int) -> StrictArray:
        """Rows of the array's memory, which are only read."""
        return self.strict_device.viewed(array, lambda memory: memory[start:stop])

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        """One call of all, which waits for what it copied to the host at its end, once."""
        return counted_join(calls, self.strict_device.counts, self.strict_device.joined)


class SeparateStrictExecutionProvider(StrictExecutionProvider):
    """The same, whose calls are not joined."""

    join_calls = ExecutionProvider.join_calls
