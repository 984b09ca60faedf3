"""Descriptors of memory: shape, type and layout of an argument."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray

from .constants import ANY_LAYOUT, DATA_TYPES
from .library import library

__all__ = ["MemoryDescriptor", "any_layout", "contiguous", "of_array", "row_major_strides", "strided"]


class Steps(NamedTuple):
    """A layout with a fixed step along each axis."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    itemsize: int
    """Bytes of an element."""

    @property
    def nbytes(self) -> tuple[int, ...]:
        """The steps in bytes."""
        return tuple(stride * self.itemsize for stride in self.strides)

    @property
    def extent_bytes(self) -> int:
        """From the first element to the end of the last one."""
        if not all(self.shape):
            return 0
        return self.itemsize + sum((size - 1) * step for size, step in zip(self.shape, self.nbytes, strict=True))


class MemoryDescriptor:
    """``dnnl_memory_desc_t``. Equal keys mean equal descriptors.

    Args:
        handle: owned by the new object.
        key: all that makes it what it is.
        steps: where its elements lie, if they do so at fixed steps.
    """

    __slots__ = ("__weakref__", "_hash", "handle", "key", "nbytes", "steps")

    def __init__(self, handle: Any, key: Hashable, steps: Steps | None = None) -> None:
        functions = library().functions
        self.handle = library().ffi.gc(handle, functions.dnnl_memory_desc_destroy)
        self.key = key
        self._hash = hash(key)
        self.steps = steps
        self.nbytes = int(functions.dnnl_memory_desc_get_size(handle))
        """Bytes of memory it describes; 0 if the layout is open. oneDNN counts whole steps, behind the last element, too."""

    @property
    def extent_bytes(self) -> int:
        """Bytes from the first element to the end of the last one, which is all that is read or written."""
        return self.nbytes if self.steps is None else self.steps.extent_bytes

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, MemoryDescriptor) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def is_same_layout(self, other: MemoryDescriptor) -> bool:
        """Whether both describe memory in the same way, however they came about."""
        return bool(library().functions.dnnl_memory_desc_equal(self.handle, other.handle))


@functools.lru_cache(maxsize=4096)
def strided(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> MemoryDescriptor:
    """A layout with a fixed step along each axis.

    Args:
        shape: sizes.
        dtype: one of ``DATA_TYPES``.
        strides: steps in elements.
    """
    onednn = library()
    make = onednn.functions.dnnl_memory_desc_create_with_strides
    sizes, steps = onednn.integers(shape), onednn.integers(strides)
    handle = onednn.new_handle(
        f"describing memory of shape {shape}, strides {strides}", make, len(shape), sizes, DATA_TYPES[dtype], steps
    )
    return MemoryDescriptor(handle, ("strided", shape, dtype.char, strides), Steps(shape, strides, dtype.itemsize))


def of_array(array: HostArray, shape: Sequence[int] | None = None) -> MemoryDescriptor:
    """An array as it lies in memory.

    Args:
        array: its type is one of ``DATA_TYPES``.
        shape: seen with this shape, if the array is contiguous.
    """
    if shape is not None:
        return contiguous(tuple(shape), array.dtype)
    return strided(array.shape, array.dtype, tuple(stride // array.itemsize for stride in array.strides))


def contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryDescriptor:
    """Row-major order."""
    return strided(shape, dtype, row_major_strides(shape))


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Steps in elements of an array whose last axis is the innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


@functools.lru_cache(maxsize=4096)
def any_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryDescriptor:
    """A layout that the primitive shall choose."""
    onednn = library()
    make = onednn.functions.dnnl_memory_desc_create_with_tag
    handle = onednn.new_handle(
        f"describing memory of shape {shape}", make, len(shape), onednn.integers(shape), DATA_TYPES[dtype], ANY_LAYOUT
    )
    return MemoryDescriptor(handle, ("any", shape, dtype.char))
