"""Allocator of host memory, aligned to cache lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType
from ort_sdk_cpu.platform.addresses import address_of

if TYPE_CHECKING:
    from .result_pool import ResultPool

__all__ = ["ALIGNMENT_BYTES", "CpuAllocator"]

ALIGNMENT_BYTES = 64
MIN_POOLED_ELEMENTS = 1 << 14
"""Elements below which results are not pooled: the C library keeps freed blocks of that size by itself."""
MAX_UNALIGNED_ELEMENTS = 1 << 6
"""Elements up to which results are not aligned: that takes longer than it saves."""


class CpuAllocator:
    """Allocates NumPy arrays whose data starts at a multiple of 64 bytes; NumPy frees them."""

    def __init__(self, memory_info: OrtMemoryInfo) -> None:
        self.memory_info = memory_info
        self._pool: ResultPool | None = None

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        dtype = element_type.numpy_dtype
        if dtype.hasobject:
            return np.empty(tuple(shape), dtype=dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
        start = -address_of(buffer) % ALIGNMENT_BYTES
        return buffer[start : start + nbytes].view(dtype).reshape(tuple(shape))

    def allocate_result(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        """As ``allocate``, but tiny arrays are not aligned, and large ones of float32 come from the pool of results."""
        count = math.prod(shape)
        if count <= MAX_UNALIGNED_ELEMENTS:
            return np.empty(tuple(shape), element_type.numpy_dtype)
        if element_type is not TensorElementType.FLOAT or count < MIN_POOLED_ELEMENTS:
            return self.allocate(shape, element_type)
        if self._pool is None:
            from .result_pool import result_pool

            self._pool = result_pool()
        return self._pool.empty(tuple(shape))

    def release(self, array: HostArray) -> None:
        """Nothing to do: NumPy frees the memory with its last array."""
