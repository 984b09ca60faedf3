"""Layouts as values: the shape, strides and type of an array, without the array and without a library's handle."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

if TYPE_CHECKING:
    from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor

__all__ = [
    "AnyLayout",
    "Layout",
    "channels_last",
    "channels_last_strides",
    "contiguous",
    "empty_channels_last",
    "is_channels_last",
    "is_nhwc",
    "layout_of",
    "row_major_strides",
]


@dataclass(frozen=True, slots=True)
class Layout:
    """Elements at fixed strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of whole strides, the one behind the last element included."""
        return self.dtype.itemsize * max(
            (size * stride for size, stride in zip(self.shape, self.strides, strict=True)), default=1
        )

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """The strides in bytes."""
        return tuple(stride * self.dtype.itemsize for stride in self.strides)

    def is_same_layout(self, other: AnyLayout) -> bool:
        """Whether both describe memory in the same way: strides along axes of one element mean nothing."""
        if not isinstance(other, Layout):
            return other.is_same_layout(self)
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        axes = zip(self.shape, self.strides, other.strides, strict=True)
        return all(stride == wanted or size == 1 for size, stride, wanted in axes)


AnyLayout: TypeAlias = "Layout | MemoryDescriptor"
"""A layout, which may be oneDNN's own."""


def contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
    """Row-major order: NCHW for (N, C, H, W)."""
    return Layout(shape, row_major_strides(shape), dtype)


def channels_last(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
    """(N, C, *spatial) in memory as (N, *spatial, C): NHWC."""
    return Layout(shape, channels_last_strides(shape), dtype)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array whose last axis is the innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


@functools.lru_cache(maxsize=1024)
def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of (N, C, *spatial) in memory as (N, *spatial, C)."""
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis], step = step, step * max(1, shape[axis])
    return tuple(strides)


def empty_channels_last(shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    """A new array (N, C, *spatial) that is (N, *spatial, C) in memory."""
    return np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)


_TO_NHWC = {rank: (0, *range(2, rank), 1) for rank in range(2, 9)}


def is_nhwc(array: HostArray) -> bool:
    """Whether (N, C, *spatial) is (N, *spatial, C) in memory, without gaps; of one channel or pixel it is NCHW at once."""
    return array.transpose(_TO_NHWC[array.ndim]).flags.c_contiguous


def is_channels_last(array: HostArray) -> bool:
    """Whether (N, C, *spatial) is (N, *spatial, C) in memory, and not row-major at once."""
    return not array.flags.c_contiguous and np.moveaxis(array, 1, -1).flags.c_contiguous


def layout_of(array: HostArray) -> Layout | None:
    """The layout of an array; None if elements are unaligned, overlap, or are not at multiples of their size.

    An array that is channels last but for axes of one element, whose strides mean nothing, is told as channels last.
    """
    return _layout(array.shape, array.strides, array.dtype) if array.flags.aligned else None


@functools.lru_cache(maxsize=4096)
def _layout(shape: tuple[int, ...], byte_strides: tuple[int, ...], dtype: np.dtype[Any]) -> Layout | None:
    if any(stride % dtype.itemsize for stride in byte_strides):
        return None
    strides = tuple(stride // dtype.itemsize for stride in byte_strides)
    wanted = channels_last_strides(shape) if len(shape) > 2 else ()
    if wanted and all(stride == other or size == 1 for stride, other, size in zip(strides, wanted, shape, strict=True)):
        return channels_last(shape, dtype)
    reach = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride < reach:
            return None
        reach = max(reach, stride * size)
    return Layout(shape, tuple(max(1, stride) for stride in strides), dtype)
