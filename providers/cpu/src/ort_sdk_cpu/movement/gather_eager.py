"""Indexing without a program: few elements by NumPy's own indexing, which looks at the indices, many by the writers' tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bound import BindableKernel, DirectlyBindable, MakeWriter

__all__ = ["INDEXING", "direct_indexing"]

WRITER_ELEMENTS = 1 << 13
"""Elements that take longer by NumPy's indexing than to make a writer."""

Indexing = Callable[[KernelInfo], "Callable[..., Any] | None"]
"""Makes, for a node, what gives its output, or raises IndexError or ValueError; None if it asks for more than that does."""


def _gather_nd(info: KernelInfo) -> Callable[..., Any] | None:
    return None if info.attribute("batch_dims", 0) else lambda data, indices: data[_columns(indices)]


def _columns(indices: HostArray) -> tuple[HostArray, ...]:
    """Index tuples as NumPy has them."""
    if indices.ndim <= 1 or not indices.shape[-1]:
        raise IndexError
    return tuple([indices[..., place] for place in range(indices.shape[-1])])


def _gather_elements(info: KernelInfo) -> Callable[..., Any]:
    axis = int(info.attribute("axis", 0))

    def gather(data: HostArray, indices: HostArray) -> Any:
        return data[_along(data, indices, axis)]

    return gather


def _along(data: HostArray, indices: HostArray, axis: int) -> tuple[HostArray, ...]:
    """Places that indices name along an axis, their other coordinates being those of the index."""
    rank = data.ndim
    places = [np.arange(count).reshape(-1, *(1,) * (rank - other - 1)) for other, count in enumerate(indices.shape)]
    places[axis] = indices
    return tuple(places)


def _scatter_nd(info: KernelInfo) -> Callable[..., Any] | None:
    if info.attribute("reduction", "none") != "none":
        return None

    def scatter(data: HostArray, indices: HostArray, updates: HostArray) -> HostArray:
        out = data.copy()
        out[_columns(indices)] = updates
        return out

    return scatter


INDEXING: dict[str, Indexing] = {"GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterND": _scatter_nd}
"""Operator → what makes it."""


def direct_indexing(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The node, in runs without a program as in those with one; None for what the shared set does as well."""
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
            return NotImplemented  # The shared set says what is wrong.

    return DirectlyBindable(kernel, make_writer, call)


def _shapes_of(info: KernelInfo, data: HostArray, indices: HostArray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the output's, that of what is moved) for arrays that belong together."""
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
