"""Memory of the host that the device reads and writes itself, without the host waiting."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.device.drivers import as_bytes
from ort_sdk_cuda.driver import CudaDriver, CudaError, Handle
from ort_sdk_cuda.errors import NO_ROOM

from .command_queue import CommandQueue

__all__ = ["PinnedBuffer", "PinnedMemory", "PinnedRing", "address_of"]


class _Allocation(int):
    """Address of pinned memory, which goes back to the driver with the object."""

    queue: CommandQueue

    def __del__(self) -> None:
        self.queue.discard(_freed, int(self))


def _freed(queue: CommandQueue, address: int) -> None:
    # A queued copy may be reading it.
    queue.driver.synchronize_stream(queue.stream)
    queue.driver.free_pinned(address)


class PinnedMemory:
    """The host's memory that a device reads and writes, for a pool: see ``DriverMemory``.

    Args:
        queue: of the device.
    """

    alignment_bytes = 64

    def __init__(self, queue: CommandQueue) -> None:
        self._queue = queue
        self.name = f"the host, pinned for {queue.name}"

    def allocate(self, nbytes: int) -> int:
        """Address of memory, an object that frees it when it ends."""
        try:
            with self._queue.commands(f"pinning {nbytes} bytes", passes_on=NO_ROOM) as driver:
                found = _Allocation(driver.allocate_pinned(nbytes))
        except CudaError as error:
            raise MemoryError(str(error)) from error
        found.queue = self._queue
        return found

    def part(self, handle: int, offset_bytes: int, nbytes: int) -> int:
        """Address of a part."""
        return handle + offset_bytes

    def settle(self) -> None:
        """Wait for all copies."""
        self._queue.settle()


class PinnedBuffer:
    """Pinned memory, which is used again when the object ends.

    Args:
        queue: of the device, whose commands are being queued.
        nbytes: size.

    Raises:
        OutOfMemory: the system pins no more memory.
    """

    def __init__(self, queue: CommandQueue, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = queue.pinned.allocate(nbytes)
        # Copies of whoever had it before may still be queued, and the host writes at once.
        queue.driver.synchronize_stream(queue.stream)
        self.address = int(self._memory.handle)
        self.array: HostArray = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(self.address))
        """Its bytes; not to be used after the buffer."""


class PinnedRing:
    """Buffers that are used one after the other, each again when the device is done with it.

    Args:
        queue: of the device, whose commands are being queued.
        count: of buffers.
        nbytes: size of each.
    """

    def __init__(self, queue: CommandQueue, count: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._buffers = [PinnedBuffer(queue, nbytes) for _ in range(count)]
        self._events: list[Handle] = [queue.driver.make_event() for _ in range(count)]
        self._next = 0

    def upload(self, driver: CudaDriver, array: HostArray, address: int, stream: Handle) -> None:
        """Queue a copy of a contiguous array, which has been read when this returns.

        Args:
            driver: with the context current.
            array: any size.
            address: on the device.
            stream: where the copy is queued.
        """
        content = as_bytes(array)
        for start in range(0, len(content), self.nbytes):
            piece = content[start : start + self.nbytes]
            position, self._next = self._next, (self._next + 1) % len(self._buffers)
            buffer, event = self._buffers[position], self._events[position]
            driver.synchronize_event(event)
            buffer.array[: len(piece)] = piece
            driver.copy_to_device(address + start, buffer.address, len(piece), stream)
            driver.record_event(event, stream)


def address_of(array: HostArray) -> int:
    """Where an array begins."""
    found: Any = array.ctypes.data
    return int(found)
