"""The allocator of strict devices, and the blocks of one session, which hold poison at the start of each run."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import OrtMemoryInfo, TensorElementType

from .memory import BLOCK_ALIGNMENT_BYTES, StrictArray, StrictBlock, StrictDevice

__all__ = ["RunBlocks", "StrictAllocator"]


class RunBlocks:
    """The blocks of one session, used by any number of runs at a time."""

    def __init__(self) -> None:
        self._blocks: weakref.WeakSet[StrictBlock] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._runs = 0

    def add(self, block: StrictBlock) -> None:
        """Take in a block."""
        with self._lock:
            self._blocks.add(block)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Context of a run. Poisons the blocks, if no other run may be using them."""
        self._enter()
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1

    def _enter(self) -> None:
        # Not in the generator: its variables would keep a block for as long as the run lasts.
        with self._lock:
            self._runs += 1
            for block in self._blocks if self._runs == 1 else ():
                block.poison()


class StrictAllocator:
    """Allocator of a strict device; what it hands out holds poison.

    Args:
        strict_device: the device.
        memory_info: the kind of memory, as the host asked for it.
        capacity_bytes: bytes the device has; None for no limit.
        blocks: gets the blocks.
    """

    block_alignment_bytes = BLOCK_ALIGNMENT_BYTES

    def __init__(
        self,
        strict_device: StrictDevice,
        memory_info: OrtMemoryInfo,
        capacity_bytes: int | None = None,
        blocks: RunBlocks | None = None,
    ) -> None:
        self._blocks = RunBlocks() if blocks is None else blocks
        self._device = strict_device
        self._memory_info = memory_info
        self._capacity_bytes = capacity_bytes

    @property
    def memory_info(self) -> OrtMemoryInfo:
        """The kind of memory it hands out."""
        return self._memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> StrictArray:
        """A new poisoned array.

        Raises:
            MemoryError: more bytes than the device has left.
            InvalidArgument: the device does not store the type.
        """
        self._device.require_type(element_type)
        self._require_room(int(np.prod(shape, dtype=np.int64)) * element_type.numpy_dtype.itemsize)
        return self._device.poisoned(shape, element_type)

    def allocate_block(self, nbytes: int) -> StrictBlock:
        """A new poisoned block; what is in it is poison again at the start of each run.

        Raises:
            MemoryError: more bytes than the device has left.
        """
        self._require_room(nbytes)
        block = self._device.block(nbytes)
        self._blocks.add(block)
        return block

    def grow_block(self, block: StrictBlock, nbytes: int) -> bool:
        """False: blocks stay as they are."""
        return False

    def view(self, block: StrictBlock, offset_bytes: int, shape: Sequence[int], element_type: TensorElementType) -> StrictArray:
        """An array in a block.

        Raises:
            InvalidArgument: it is not inside of the block, not aligned, or of a type that the device does not store.
        """
        return self._device.view(block, offset_bytes, shape, element_type)

    def release(self, array: Any) -> None:
        """Give an array back; it holds poison from then on, and any later use of it raises.

        Raises:
            InvalidArgument: it is no array of this device.
            RuntimeException: it was released before.
        """
        self._device.release(array)

    def _require_room(self, wanted: int) -> None:
        used = 0 if self._capacity_bytes is None else self._device.bytes_in_use
        if self._capacity_bytes is not None and used + wanted > self._capacity_bytes:
            raise MemoryError(
                f"device {self._device.device}: {wanted} bytes asked, {used} of {self._capacity_bytes} bytes are in use"
            )
