"""Descriptors of memory: shape, type and layout of an argument, as oneDNN's handles."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any, Protocol, TypeAlias

import numpy as np

from ort_sdk.api import HostArray

from .constants import ANY_LAYOUT, DATA_TYPES
from .library import library

__all__ = ["AnyDescription", "MemoryDescriptor", "StridedLayout", "any_layout", "described", "of_array", "strided"]


class StridedLayout(Protocol):
    """A layout with a fixed stride along each axis, in elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Along the axes, in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """One of ``DATA_TYPES``."""


class MemoryDescriptor:
    """``dnnl_memory_desc_t``. Equal keys mean equal descriptors.

    Args:
        handle: owned by the new object.
        key: all that makes it what it is.
        extent_bytes: see below; None if its strides are oneDNN's own.
    """

    __slots__ = ("__weakref__", "_hash", "extent_bytes", "handle", "key", "nbytes")

    def __init__(self, handle: Any, key: Hashable, extent_bytes: int | None = None) -> None:
        functions = library().functions
        self.handle = library().ffi.gc(handle, functions.dnnl_memory_desc_destroy)
        self.key = key
        self._hash = hash(key)
        self.nbytes = int(functions.dnnl_memory_desc_get_size(handle))
        """Bytes of memory it describes; 0 if the layout is open. oneDNN counts whole strides, behind the last element, too."""
        self.extent_bytes = self.nbytes if extent_bytes is None else extent_bytes
        """Bytes from the first element to the end of the last one, which is all that is read or written."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, MemoryDescriptor) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def is_same_layout(self, other: AnyDescription) -> bool:
        """Whether both describe memory in the same way, however they came about."""
        return bool(library().functions.dnnl_memory_desc_equal(self.handle, described(other).handle))


AnyDescription: TypeAlias = MemoryDescriptor | StridedLayout


def described(layout: AnyDescription) -> MemoryDescriptor:
    """The descriptor of a layout."""
    if isinstance(layout, MemoryDescriptor):
        return layout
    return strided(layout.shape, layout.dtype, layout.strides)


@functools.lru_cache(maxsize=4096)
def strided(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> MemoryDescriptor:
    """A layout with a fixed stride along each axis.

    Args:
        shape: sizes.
        dtype: one of ``DATA_TYPES``.
        strides: in elements.
    """
    onednn = library()
    make = onednn.functions.dnnl_memory_desc_create_with_strides
    sizes, steps = onednn.integers(shape), onednn.integers(strides)
    handle = onednn.new_handle(
        f"describing memory of shape {shape}, strides {strides}", make, len(shape), sizes, DATA_TYPES[dtype], steps
    )
    return MemoryDescriptor(handle, ("strided", shape, dtype.char, strides), _extent_bytes(shape, dtype, strides))


def _extent_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> int:
    if not math.prod(shape):
        return 0
    return dtype.itemsize * (1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)))


def of_array(array: HostArray) -> MemoryDescriptor:
    """An array as it is in memory.

    Args:
        array: its type is one of ``DATA_TYPES``.
    """
    return strided(array.shape, array.dtype, tuple(stride // array.itemsize for stride in array.strides))


@functools.lru_cache(maxsize=4096)
def any_layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryDescriptor:
    """A layout that the primitive shall choose."""
    onednn = library()
    make = onednn.functions.dnnl_memory_desc_create_with_tag
    handle = onednn.new_handle(
        f"describing memory of shape {shape}", make, len(shape), onednn.integers(shape), DATA_TYPES[dtype], ANY_LAYOUT
    )
    return MemoryDescriptor(handle, ("any", shape, dtype.char))
