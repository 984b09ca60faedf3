"""A pool of device memory, so that arrays cost no call to the driver.

Small arrays are parts of slabs, larger ones blocks of a few sizes; what ends is used again. That is safe where the queue is in
order: what is queued later comes after what read the memory last. Very large blocks go back to the driver at once.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, Protocol

from ort_sdk.api import OutOfMemory
from ort_sdk.device.launches import Memory, MemoryPart

__all__ = ["DriverMemory", "MemoryPool"]

SLAB_BYTES = 1 << 20
MOST_PART_BYTES = 1 << 16
"""Largest array that is a part of a slab."""
MOST_KEPT_BLOCK_BYTES = 32 << 20
MOST_KEPT_BYTES = 256 << 20
"""Of free blocks, together."""


class DriverMemory(Protocol):
    """A driver's memory, by handles of its own."""

    alignment_bytes: int
    """Of parts."""
    name: str
    """Of the device, for errors."""

    def allocate(self, nbytes: int) -> Any:
        """A handle of new memory, which is freed with the handle.

        Raises:
            MemoryError: there is no room, or not for so much at once; says what the driver said.
        """

    def part(self, handle: Any, offset_bytes: int, nbytes: int) -> Any:
        """A handle of a part of memory, which the caller keeps alive."""

    def settle(self) -> None:
        """Wait until the device uses no memory whose handle is gone."""


class _Block:
    __slots__ = ("handle", "nbytes", "offset", "root")

    def __init__(self, root: Any, offset: int, nbytes: int, handle: Any) -> None:
        self.root, self.offset, self.nbytes, self.handle = root, offset, nbytes, handle


class PooledMemory(Memory):
    """Memory of a pool, which takes it back when nobody refers to it any more."""

    __slots__ = ("_returned", "block")

    def __init__(self, nbytes: int, block: _Block, returned: collections.deque[_Block]) -> None:
        super().__init__(nbytes, block.handle)
        self.block, self._returned = block, returned

    def __del__(self) -> None:
        # Called anywhere, also while this thread holds the pool's lock: appending needs none.
        if self.block.nbytes > MOST_KEPT_BLOCK_BYTES:
            self.block.handle = self.block.root = None
            self.handle = None
        self._returned.append(self.block)


class MemoryPool:
    """Memory of one device. Thread-safe.

    Args:
        driver: allocates.
        limit_bytes: most that is held from the driver; 0 for no limit.
    """

    def __init__(self, driver: DriverMemory, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._driver = driver
        self._lock = threading.Lock()
        self._free: dict[int, list[_Block]] = {}
        self._returned: collections.deque[_Block] = collections.deque()
        self._in_use = self._held = self._kept = 0

    @property
    def bytes_in_use(self) -> int:
        """Bytes of arrays that are there, rounded up to blocks."""
        with self._lock:
            self._take_back()
            return self._in_use

    @property
    def bytes_held(self) -> int:
        """Bytes that the driver has given, with those of free blocks."""
        with self._lock:
            self._take_back()
            return self._held

    def allocate(self, nbytes: int) -> Memory:
        """Memory of at least one byte, with undefined contents.

        Raises:
            OutOfMemory: the device has no room, or the limit is reached; says how much was asked for and is in use.
        """
        size = _block_bytes(nbytes, self._driver.alignment_bytes)
        with self._lock:
            self._take_back()
            blocks = self._free.get(size)
            if blocks:
                block = blocks.pop()
                self._kept -= size
            else:
                block = self._new(size, nbytes)
            self._in_use += size
            return PooledMemory(nbytes, block, self._returned)

    def part(self, memory: Memory, offset_bytes: int, nbytes: int) -> Memory:
        """A part of memory, of the pool or of others, which it keeps alive."""
        # a driver makes parts of whole pieces only
        whole, start = memory.place
        offset = start + offset_bytes
        root, first = (whole.block.root, whole.block.offset) if isinstance(whole, PooledMemory) else (whole.handle, 0)
        return MemoryPart(nbytes, self._driver.part(root, first + offset, nbytes), whole, offset)

    def trim(self) -> None:
        """Give free blocks back to the driver; slabs stay."""
        with self._lock:
            self._take_back()
            self._trim()

    def _new(self, size: int, nbytes: int) -> _Block:
        if size <= MOST_PART_BYTES:
            root = self._new_memory(SLAB_BYTES, nbytes)
            blocks = [_Block(root, at, size, self._driver.part(root, at, size)) for at in range(0, SLAB_BYTES, size)]
            self._held += SLAB_BYTES
            block = blocks.pop()
            self._free.setdefault(size, []).extend(blocks)
            self._kept += len(blocks) * size
            return block
        root = self._new_memory(size, nbytes)
        self._held += size
        return _Block(root, 0, size, root)

    def _new_memory(self, size: int, nbytes: int) -> Any:
        """New memory of the driver's; after free blocks went back to it, if need be."""
        try:
            return self._within_limit(size)
        except MemoryError:
            self._driver.settle()
            self._take_back()
            self._trim()
            try:
                return self._within_limit(size)
            except MemoryError as error:
                raise OutOfMemory(
                    f"allocating {nbytes} bytes on {self._driver.name}: {error}; {self._in_use} bytes are in use by arrays, "
                    f"{self._held} are held: close sessions, take smaller batches, or another device"
                ) from error

    def _within_limit(self, size: int) -> Any:
        if self.limit_bytes and self._held + size > self.limit_bytes:
            raise MemoryError(f"the limit of {self.limit_bytes} bytes (provider option gpu_mem_limit) is reached")
        return self._driver.allocate(size)

    def _take_back(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._in_use -= block.nbytes
            is_slab_part = block.nbytes <= MOST_PART_BYTES
            if is_slab_part or (block.nbytes <= MOST_KEPT_BLOCK_BYTES and self._kept + block.nbytes <= MOST_KEPT_BYTES):
                self._free.setdefault(block.nbytes, []).append(block)
                self._kept += block.nbytes
            else:
                self._held -= block.nbytes

    def _trim(self) -> None:
        for size in [size for size in self._free if size > MOST_PART_BYTES]:
            released = len(self._free.pop(size)) * size
            self._kept -= released
            self._held -= released


def _block_bytes(nbytes: int, alignment_bytes: int) -> int:
    """Size of the block for an array: a power of two where it is a part of a slab, else rounded up by an eighth at most."""
    least = max(nbytes, alignment_bytes, 1)
    power = 1 << (least - 1).bit_length()
    if power <= MOST_PART_BYTES:
        return power
    if power > 2 * MOST_KEPT_BLOCK_BYTES:
        return -(-least // alignment_bytes) * alignment_bytes
    step = power // 16
    return -(-least // step) * step
