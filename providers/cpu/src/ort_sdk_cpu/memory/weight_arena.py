"""Copies of weights of small model files, where cache lines begin.

In a model's file a weight may begin at any byte. Most vectors of it then are in two cache lines each, of which the cores' caches
have to bring more, and products of few rows wait for little else.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeGuard

import numpy as np

from ort_sdk.api import FileTensor, HostArray, Tensor, TensorElementType
from ort_sdk_cpu.platform.addresses import address_of

from .allocator import ALIGNMENT_BYTES, CpuAllocator

__all__ = ["is_worth_moving", "memory_for", "moved"]

MOST_FILE_BYTES = 1 << 27
"""Size of a model's file up to which its weights are copied: those of larger ones come from memory so slowly that it gains
little, and processes share them."""
FEWEST_FILE_BYTES = 1 << 24
"""From which on copies are put side by side: with few weights, large pages would be memory that nobody uses."""
_REGION_BYTES = 1 << 24
"""Memory that is asked for at a time: NumPy has so much of it made of large pages, of which a processor remembers the places."""


def is_worth_moving(weight: Tensor) -> TypeGuard[FileTensor]:
    """Whether a weight of float32 is in a small model file, and no cache line begins there."""
    # Asked of every product: to look whether an object has all that a protocol names takes longer than all else.
    file_bytes = getattr(weight, "model_file_bytes", 0)
    if weight.element_type is not TensorElementType.FLOAT or not 0 < file_bytes <= MOST_FILE_BYTES:
        return False
    return address_of(weight.packed()) % ALIGNMENT_BYTES != 0


def moved(weight: FileTensor, allocator: Any) -> HostArray:
    """A copy of the bytes of a weight.

    Args:
        weight: one that ``is_worth_moving``.
        allocator: of the memory, unless that is the provider's own.
    """
    data = weight.packed()
    copy = memory_for(weight, data.nbytes, allocator)
    np.copyto(copy, data)
    copy.flags.writeable = False
    return copy


def memory_for(weight: Tensor, nbytes: int, allocator: Any) -> HostArray:
    """Memory for what is made of a weight, at a multiple of 64 bytes: in a large piece with that of others, unless they are few.

    Args:
        weight: tells how many others there may be.
        nbytes: of the memory.
        allocator: of the memory, unless that is the provider's own.
    """
    file_bytes = getattr(weight, "model_file_bytes", 0)
    if isinstance(allocator, CpuAllocator) and not 0 < file_bytes < FEWEST_FILE_BYTES:
        return _regions.allocate(nbytes)
    memory: HostArray = allocator.allocate((nbytes,), TensorElementType.UINT8)
    return memory


class _Regions:
    """Large pieces of memory that arrays lie in side by side; a piece ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._region: weakref.ref[HostArray] = weakref.ref(np.empty(0, np.uint8))
        self._next = 0
        """Where the next array begins."""

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
