"""Cache-line-aligned copies of weights of small model files, side by side in large regions of memory.

In a model's file a weight may begin at any byte. Most 64-byte vectors of it then span two cache lines, so that more lines are
loaded, and matrix products with few rows are bound by such loads.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeGuard

import numpy as np

from ort_sdk.api import FileTensor, HostArray, Tensor, TensorElementType
from ort_sdk_cpu.platform.addresses import address_of

from .allocator import ALIGNMENT_BYTES, CpuAllocator

__all__ = ["aligned_copy", "is_worth_aligning", "weight_memory"]

MAX_FILE_BYTES = 1 << 27
"""Size of a model file up to which its weights are copied: larger models are bound by main memory, where alignment gains little,
and their mapped pages are shared between processes."""
MIN_SHARED_FILE_BYTES = 1 << 24
"""Size of a model file from which on copies share regions: with few weights, most of a huge page would be unused."""
_REGION_BYTES = 1 << 24
"""Size of a region: NumPy asks the kernel for huge pages for so large an allocation, which need fewer TLB entries."""


def is_worth_aligning(weight: Tensor) -> TypeGuard[FileTensor]:
    """Whether a weight is a float32 tensor of a small model file that does not begin at a multiple of 64 bytes."""
    # Called for every matrix product: an isinstance check against the protocol would take longer than all else here.
    file_bytes = getattr(weight, "model_file_bytes", 0)
    if weight.element_type is not TensorElementType.FLOAT or not 0 < file_bytes <= MAX_FILE_BYTES:
        return False
    return address_of(weight.packed()) % ALIGNMENT_BYTES != 0


def aligned_copy(weight: FileTensor, allocator: Any) -> HostArray:
    """A read-only, aligned copy of the bytes of a weight.

    Args:
        weight: one that ``is_worth_aligning``.
        allocator: the session's; if it is a ``CpuAllocator``, the copy may be in a shared region.
    """
    data = weight.packed()
    copy = weight_memory(weight, data.nbytes, allocator)
    np.copyto(copy, data)
    copy.flags.writeable = False
    return copy


def weight_memory(weight: Tensor, nbytes: int, allocator: Any) -> HostArray:
    """Memory for a packed weight, at a multiple of 64 bytes; in a region shared with other weights unless the model is small.

    Args:
        weight: the weight, whose model file's size decides.
        nbytes: size of the memory.
        allocator: the session's; if it is a ``CpuAllocator``, the memory may be in a shared region.
    """
    file_bytes = getattr(weight, "model_file_bytes", 0)
    if isinstance(allocator, CpuAllocator) and not 0 < file_bytes < MIN_SHARED_FILE_BYTES:
        return _regions.allocate(nbytes)
    memory: HostArray = allocator.allocate((nbytes,), TensorElementType.UINT8)
    return memory


class _Regions:
    """Bump allocator: arrays side by side in large regions; a region is freed with its last array."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: weakref.ref[HostArray] = weakref.ref(np.empty(0, np.uint8))
        self._next = 0
        """Offset of the next array in the region."""

    def allocate(self, nbytes: int) -> HostArray:
        """Memory at a multiple of 64 bytes."""
        with self._lock:
            region = self._region()
            start = self._next
            if region is None or start + nbytes > region.nbytes:
                region = np.empty(max(_REGION_BYTES, nbytes + ALIGNMENT_BYTES), np.uint8)
                start = -address_of(region) % ALIGNMENT_BYTES
                self._region = weakref.ref(region)
            self._next = start + -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            return region[start : start + nbytes]


_regions = _Regions()
