"""Host memory, aligned for vector instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType
from ort_sdk_cpu.platform.addresses import address_of

if TYPE_CHECKING:
    from .result_pool import RecycledMemory

__all__ = ["ALIGNMENT_BYTES", "CpuAllocator"]

ALIGNMENT_BYTES = 64
FEW_ELEMENTS = 1 << 14
"""Whose memory the system's allocator keeps by itself."""
TINY_ELEMENTS = 1 << 6
"""For which to find a multiple of 64 bytes takes longer than it saves."""


class CpuAllocator:
    """Allocates NumPy arrays whose data starts at a multiple of 64 bytes; NumPy frees them."""

    def __init__(self, memory_info: OrtMemoryInfo) -> None:
        self.memory_info = memory_info
        self._recycled: RecycledMemory | None = None

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        dtype = element_type.numpy_dtype
        if dtype.hasobject:
            return np.empty(tuple(shape), dtype=dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = np.empty(nbytes + ALIGNMENT_BYTES, dtype=np.uint8)
        start = -address_of(buffer) % ALIGNMENT_BYTES
        return buffer[start : start + nbytes].view(dtype).reshape(tuple(shape))

    def allocate_result(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        """As ``allocate``; tiny arrays wherever they are, large ones of float32 on memory that earlier results were on."""
        count = math.prod(shape)
        if count <= TINY_ELEMENTS:
            return np.empty(tuple(shape), element_type.numpy_dtype)
        if element_type is not TensorElementType.FLOAT or count < FEW_ELEMENTS:
            return self.allocate(shape, element_type)
        if self._recycled is None:
            from .result_pool import recycled_memory

            self._recycled = recycled_memory()
        return self._recycled.empty(tuple(shape))

    def release(self, array: HostArray) -> None:
        """Nothing to do: the memory ends with its last array."""
