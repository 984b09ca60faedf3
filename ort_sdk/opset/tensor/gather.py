"""Gather, GatherElements and GatherND: elements picked by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .common import normalize_axis

__all__ = ["check_bounds", "flat_positions", "gather", "gather_elements", "gather_nd", "nd_positions"]

FAR_AWAY = 1 << 62
"""A position that is out of bounds of any array, also when a position in one is added to it."""


def check_bounds(info: KernelInfo, xp: Any, indices: Array, limits: Sequence[int] | int) -> None:
    """Compare NumPy indices with the sizes of their dimensions; other libraries are not made to synchronise for it.

    Raises:
        InvalidArgument: an index is outside [-size, size - 1].
    """
    if xp.is_host and indices.size and (np.any(indices >= limits) or np.any(indices < np.negative(limits))):
        raise InvalidArgument(
            f"{info.describe()}: indices from {indices.min()} to {indices.max()} do not fit dimension(s) {limits}; "
            "an index must be within [-size, size - 1]"
        )


def nd_positions(xp: Any, indices: Array, dims: Sequence[int]) -> Array:
    """Row numbers (...,) that index tuples (..., k) name in an array whose k leading dimensions are ``dims``.

    A tuple out of bounds, which ``check_bounds`` has found on the host, names a row that is out of bounds of any array.
    """
    positions, is_within = xp.zeros(indices.shape[:-1], dtype=xp.int64), None
    for column, dim in enumerate(dims):
        index = indices[..., column] if xp.is_host else xp.astype(indices[..., column], TensorElementType.INT64)
        positions = positions * dim + xp.where(index < 0, index + dim, index)
        if not xp.is_host:
            own = _is_within(xp, index, dim)
            is_within = own if is_within is None else xp.logical_and(is_within, own)
    return positions if is_within is None else xp.where(is_within, positions, xp.asarray(FAR_AWAY, dtype=xp.int64))


def _is_within(xp: Any, index: Array, dim: int) -> Array:
    return xp.logical_and(index >= -dim, index < dim)


def flat_positions(xp: Any, indices: Array, shape: Sequence[int], axis: int) -> Array:
    """Flat positions, in an array of ``shape``, of the elements that ``indices`` of its rank name along ``axis``.

    An index out of bounds, which ``check_bounds`` has found on the host, names a position that is out of bounds of any array.
    """
    wide = xp.astype(indices, TensorElementType.INT64)
    positions = xp.where(wide < 0, wide + shape[axis], wide) * math.prod(shape[axis + 1 :])
    for other, count in enumerate(indices.shape):
        if other != axis:
            offsets = xp.arange(count, dtype=xp.int64) * math.prod(shape[other + 1 :])
            positions = positions + xp.reshape(offsets, (count, *(1,) * (len(shape) - other - 1)))
    if xp.is_host:
        return positions
    return xp.where(_is_within(xp, wide, shape[axis]), positions, xp.asarray(FAR_AWAY, dtype=xp.int64))


@operator("Gather", moves=True)
def gather(info: KernelInfo, xp: Any) -> Compute:
    """Slices of the data along ``axis``; the axes of the indices replace that axis."""
    axis = info.attribute("axis", 0)
    pick = xp.gather

    def compute(data: Array, indices: Array) -> Array:
        along = normalize_axis(info, axis, data.ndim)
        try:
            return pick(data, indices, along)
        except IndexError as error:
            raise InvalidArgument(
                f"{info.describe()}: an index is outside axis {along} of {tuple(data.shape)}: {error}"
            ) from error

    return compute


@operator("GatherElements", moves=True)
def gather_elements(info: KernelInfo, xp: Any) -> Compute:
    """``data[i, index[i, j], k]``-wise: an element for each index, its other coordinates those of the index."""
    axis = info.attribute("axis", 0)

    def compute(data: Array, indices: Array) -> Array:
        along = normalize_axis(info, axis, data.ndim)
        if indices.ndim != data.ndim:
            raise InvalidArgument(f"{info.describe()}: indices {indices.shape} and data {data.shape} must have the same rank")
        check_bounds(info, xp, indices, data.shape[along])
        window = tuple(slice(None) if other == along else slice(0, count) for other, count in enumerate(indices.shape))
        window_data = data[window]
        if any(window_data.shape[other] != count for other, count in enumerate(indices.shape) if other != along):
            raise InvalidArgument(f"{info.describe()}: indices {indices.shape} exceed data {data.shape} beside axis {along}")
        wide = xp.astype(indices, TensorElementType.INT64)
        wide = wide if xp.is_host else xp.where(wide < 0, wide + data.shape[along], wide)
        return xp.take_along_axis(window_data, wide, axis=along)

    return compute


@operator("GatherND", moves=True)
def gather_nd(info: KernelInfo, xp: Any) -> Compute:
    """Slices of the data at index tuples (the last axis of the indices), per batch over the first ``batch_dims`` axes."""
    batch_dims = info.attribute("batch_dims", 0)

    def compute(data: Array, indices: Array) -> Array:
        if indices.ndim <= batch_dims:
            raise InvalidArgument(
                f"{info.describe()}: indices {tuple(indices.shape)} have no axis of index tuples behind {batch_dims} batch "
                "dimensions; they need more axes than batch_dims"
            )
        shape, depth = tuple(data.shape), indices.shape[-1]
        batch, dims, rest = shape[:batch_dims], shape[batch_dims : batch_dims + depth], shape[batch_dims + depth :]
        if len(dims) != depth or batch != tuple(indices.shape[:batch_dims]):
            raise InvalidArgument(
                f"{info.describe()}: index tuples of {depth} with {batch_dims} batch dimensions, in indices {indices.shape}, "
                f"do not fit data {shape}; batch dimensions must agree and batch_dims + tuple length stay within the rank"
            )
        check_bounds(info, xp, indices, dims)
        positions = nd_positions(xp, indices, dims)
        if batch_dims:
            starts = xp.arange(math.prod(batch), dtype=xp.int64) * math.prod(dims)
            positions = positions + xp.reshape(starts, (*batch, *(1,) * (positions.ndim - batch_dims)))
        rows = xp.reshape(data, (math.prod(batch) * math.prod(dims), *rest))
        return xp.gather(rows, positions, 0)

    return compute
