"""Small arrays go to the device through memory that stays, so that nobody waits until it has read them."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api import HostArray
from ort_sdk.device.drivers import as_bytes

__all__ = ["MOST_STAGED_BYTES", "StagingRing"]

MOST_STAGED_BYTES = 128 << 10
"""Largest array that is copied there: to copy a larger one takes longer than to wait."""
RING_BYTES = 2 << 20
_ALIGNMENT = 64


class StagingRing:
    """Memory of the host that the driver allocated, so that it need not be pinned for each copy. Not thread-safe.

    It is used as a ring, in the order of the queue: what was copied there first has been read first.

    Args:
        context: of the device.
        queue: maps it.
    """

    def __init__(self, context: Any, queue: Any) -> None:
        buffer = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.ALLOC_HOST_PTR, RING_BYTES)
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        # it stays mapped: the device reads it as memory of the host, through copies
        self._memory, _ = cl.enqueue_map_buffer(queue, buffer, flags, 0, (RING_BYTES,), np.uint8, is_blocking=True)
        self._next = 0
        self._unread: deque[tuple[int, int, Any]] = deque()
        """First byte, the one after the last, and event of each copy, the oldest first."""

    def upload(self, queue: Any, array: HostArray, handle: Any, offset_bytes: int) -> Any:
        """Queue a copy of a contiguous array of at most ``MOST_STAGED_BYTES``, which has been read when this returns.

        Args:
            queue: of the device.
            array: not empty.
            handle: buffer it goes to.
            offset_bytes: where it begins there.

        Returns:
            Event of the copy.
        """
        start = self._room(array.nbytes)
        place = self._memory[start : start + array.nbytes]
        place[...] = as_bytes(array)
        event = cl.enqueue_copy(queue, handle, place, dst_offset=offset_bytes, is_blocking=False)
        # An event of a copy that is dropped before it happened is waited for.
        self._unread.append((start, self._next, event))
        return event

    def _room(self, nbytes: int) -> int:
        """Where there is room, once the device has read what was there."""
        size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        start, tail = self._next, RING_BYTES
        if start + size > RING_BYTES:
            # what is left of the lap before, behind here, is older than what is at the beginning
            start, tail = 0, self._next
        self._next = start + size
        while self._unread and self._is_in_the_way(self._unread[0], start, tail):
            self._unread.popleft()[2].wait()
        return start

    def _is_in_the_way(self, copy: tuple[int, int, Any], start: int, tail: int) -> bool:
        first, end, _ = copy
        return first >= tail or (first < self._next and start < end)
