"""Host memory, aligned for vector instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType

__all__ = ["ALIGNMENT_BYTES", "CpuAllocator", "SlabAllocator"]

ALIGNMENT_BYTES = 64
SMALLEST_SLAB_BYTES = 1 << 18
LARGEST_SLAB_BYTES = 1 << 23


class CpuAllocator:
    """Allocates NumPy arrays whose data starts at a multiple of 64 bytes; NumPy frees them."""

    def __init__(self, memory_info: OrtMemoryInfo) -> None:
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        dtype = element_type.numpy_dtype
        if dtype.hasobject:
            return np.empty(tuple(shape), dtype=dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
        start = -buffer.ctypes.data % ALIGNMENT_BYTES
        return buffer[start : start + nbytes].view(dtype).reshape(tuple(shape))

    def release(self, array: HostArray) -> None:
        """Nothing to do: the memory ends with its last array."""


class SlabAllocator:
    """Carves bytes that live together, a session's packed weights, out of large blocks.

    Large blocks get large pages, so that filling them faults a four-hundredth as often as filling as many small ones; block
    sizes grow with what was taken, so that a small model does not pay for a large one's.
    """

    def __init__(self) -> None:
        self._slab: HostArray = np.empty(0, dtype=np.uint8)
        self._next = 0
        self._taken_bytes = 0

    def allocate_bytes(self, nbytes: int) -> HostArray:
        """A vector of bytes at a multiple of 64 bytes. Its block lives until the last of its vectors is gone."""
        if self._next + nbytes > self._slab.size:
            size = max(nbytes, min(max(self._taken_bytes, SMALLEST_SLAB_BYTES), LARGEST_SLAB_BYTES))
            raw = np.empty(size + ALIGNMENT_BYTES, dtype=np.uint8)
            start = -raw.ctypes.data % ALIGNMENT_BYTES
            self._slab, self._next = raw[start : start + size], 0
        found = self._slab[self._next : self._next + nbytes]
        self._next += -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._taken_bytes += nbytes
        return found
