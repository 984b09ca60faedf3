"""Gathers and scatters on arrays of shapes that were never seen before: few elements by NumPy's indexing, many by the tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bindable import BindableKernel, DirectBindableKernel
from ort_sdk_cpu.kernel.writer import MakeWriter

__all__ = ["INDEXING", "direct_indexing"]

WRITER_ELEMENTS = 1 << 13
"""Elements from which on NumPy's indexing takes longer than making a writer."""

Indexing = Callable[[KernelInfo], "Callable[..., Any] | None"]
"""From a node, a function of its inputs, which may raise IndexError or ValueError; None for attributes that it does not cover."""


def _gather_nd(info: KernelInfo) -> Callable[..., Any] | None:
    return None if info.attribute("batch_dims", 0) else lambda data, indices: data[_index_arrays(indices)]


def _index_arrays(indices: HostArray) -> tuple[HostArray, ...]:
    """Index tuples as NumPy has them."""
    if indices.ndim <= 1 or not indices.shape[-1]:
        raise IndexError
    return tuple([indices[..., axis] for axis in range(indices.shape[-1])])


def _gather_elements(info: KernelInfo) -> Callable[..., Any]:
    axis = int(info.attribute("axis", 0))

    def gather(data: HostArray, indices: HostArray) -> Any:
        return data[_along(data, indices, axis)]

    return gather


def _along(data: HostArray, indices: HostArray, axis: int) -> tuple[HostArray, ...]:
    """Coordinates of the elements that indices name along an axis."""
    rank = data.ndim
    coordinates = [np.arange(count).reshape(-1, *(1,) * (rank - other - 1)) for other, count in enumerate(indices.shape)]
    coordinates[axis] = indices
    return tuple(coordinates)


def _scatter_nd(info: KernelInfo) -> Callable[..., Any] | None:
    if info.attribute("reduction", "none") != "none":
        return None

    def scatter(data: HostArray, indices: HostArray, updates: HostArray) -> HostArray:
        out = data.copy()
        out[_index_arrays(indices)] = updates
        return out

    return scatter


INDEXING: dict[str, Indexing] = {"GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterND": _scatter_nd}
"""Operator → what makes its function."""


def direct_indexing(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The kernel, with this function for runs without a program; None for what the shared set computes as fast."""
    index = INDEXING[info.op_type](info)
    if index is None:
        return None

    def call(data: HostArray, indices: HostArray, *updates: HostArray) -> Any:
        try:
            shape, moved = _shapes_of(info, data, indices)
            if any(each.shape != moved for each in updates):
                return NotImplemented
            if math.prod(moved) >= WRITER_ELEMENTS:
                return _through_writer(make_writer, (data, indices, *updates), np.empty(shape, data.dtype))
            return index(data, indices, *updates)
        except (IndexError, ValueError):
            return NotImplemented  # the shared set raises the error

    return DirectBindableKernel(kernel, make_writer, call)


def _shapes_of(info: KernelInfo, data: HostArray, indices: HostArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the output, and of what is gathered or scattered."""
    if info.op_type == "GatherElements":
        axis = range(data.ndim)[info.attribute("axis", 0)]
        sizes = zip(indices.shape, data.shape, strict=True)
        if any(count > size for other, (count, size) in enumerate(sizes) if other != axis):
            raise IndexError
        return indices.shape, indices.shape
    depth = indices.shape[-1]
    if not 0 < depth <= data.ndim:
        raise IndexError
    moved = (*indices.shape[:-1], *data.shape[depth:])
    return data.shape if info.op_type == "ScatterND" else moved, moved


def _through_writer(make_writer: MakeWriter, inputs: Sequence[HostArray], out: HostArray) -> HostArray:
    make_writer(inputs, (out,))(*inputs, out)
    return out
