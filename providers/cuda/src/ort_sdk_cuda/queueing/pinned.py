"""Memory of the host that the device reads and writes itself, without the host waiting."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.device.drivers import as_bytes
from ort_sdk_cuda.driver import CudaDriver, Handle

if TYPE_CHECKING:
    from .device_queue import DeviceQueue

__all__ = ["PinnedBuffer", "PinnedRing", "address_of"]


class PinnedBuffer:
    """Pinned memory, which goes back to the driver with the object.

    Args:
        queue: of the device, whose commands are being queued.
        nbytes: size.
    """

    def __init__(self, queue: DeviceQueue, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = queue.driver.allocate_pinned(max(nbytes, 1))
        self.array: HostArray = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(self.address))
        """Its bytes; not to be used after the buffer."""
        self._queue = queue

    def __del__(self) -> None:
        # A queued copy may be reading it.
        queue = getattr(self, "_queue", None)
        if queue is not None:
            queue.discard(_freed, self.address)


def _freed(queue: DeviceQueue, address: int) -> None:
    queue.driver.synchronize_stream(queue.stream)
    queue.driver.free_pinned(address)


class PinnedRing:
    """Buffers that are used one after the other, each again when the device is done with it.

    Args:
        queue: of the device, whose commands are being queued.
        count: of buffers.
        nbytes: size of each.
    """

    def __init__(self, queue: DeviceQueue, count: int, nbytes: int) -> None:
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
