"""Scatter, ScatterElements, ScatterND and TensorScatter: a copy of a tensor with elements put in by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .common import normalize_axis
from .gather import check_bounds, flat_positions, nd_positions

__all__ = ["scatter_elements", "scatter_nd", "tensor_scatter"]

_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _scatter_function(info: KernelInfo, xp: Any) -> Any:
    """``scatter(data, positions, updates)`` with the node's reduction, which narrow types do in their wider type."""
    reduction = info.attribute("reduction", "none")
    if reduction not in _REDUCTIONS:
        raise InvalidArgument(f"{info.describe()}: reduction is '{reduction}'; it must be one of {', '.join(_REDUCTIONS)}")
    scatter = xp.scatter
    narrow = info.input_element_type(0)
    wide = None if narrow is None else xp.compute_type(narrow)
    if reduction == "none" or wide is narrow:
        return lambda data, positions, updates: scatter(data, positions, updates, reduction)

    def compute(data: Array, positions: Array, updates: Array) -> Array:
        return xp.astype(scatter(xp.astype(data, wide), positions, xp.astype(updates, wide), reduction), narrow)

    return compute


@operator("Scatter", until=9, moves=True)
@operator("ScatterElements", moves=True)
def scatter_elements(info: KernelInfo, xp: Any) -> Compute:
    """The data with each update put at its index along ``axis``, or combined with what is there."""
    axis = info.attribute("axis", 0)
    scatter = _scatter_function(info, xp)

    def compute(data: Array, indices: Array, updates: Array) -> Array:
        along = normalize_axis(info, axis, data.ndim)
        if indices.shape != updates.shape or indices.ndim != data.ndim:
            raise InvalidArgument(
                f"{info.describe()}: indices {indices.shape} and updates {updates.shape} must have one shape, of the rank "
                f"of data {data.shape}"
            )
        if any(count > data.shape[other] for other, count in enumerate(indices.shape) if other != along):
            raise InvalidArgument(f"{info.describe()}: indices {indices.shape} exceed data {data.shape} beside axis {along}")
        check_bounds(info, xp, indices, data.shape[along])
        positions = flat_positions(xp, indices, data.shape, along)
        flat = scatter(xp.reshape(data, (-1,)), xp.reshape(positions, (-1,)), xp.reshape(updates, (-1,)))
        return xp.reshape(flat, data.shape)

    return compute


@operator("ScatterND", moves=True)
def scatter_nd(info: KernelInfo, xp: Any) -> Compute:
    """The data with slices put in, or combined with what is there, at index tuples (the last axis of the indices)."""
    scatter = _scatter_function(info, xp)

    def compute(data: Array, indices: Array, updates: Array) -> Array:
        depth = indices.shape[-1]
        dims, rest = tuple(data.shape[:depth]), tuple(data.shape[depth:])
        if depth > data.ndim or tuple(updates.shape) != (*indices.shape[:-1], *rest):
            raise InvalidArgument(
                f"{info.describe()}: updates {updates.shape} do not fit indices {indices.shape} into data {data.shape}; "
                f"expected {(*indices.shape[:-1], *rest)}"
            )
        check_bounds(info, xp, indices, dims)
        positions = xp.reshape(nd_positions(xp, indices, dims), (-1,))
        rows = xp.reshape(data, (math.prod(dims), *rest))
        row_updates = xp.reshape(updates, (math.prod(indices.shape[:-1]), *rest))
        return xp.reshape(scatter(rows, positions, row_updates), data.shape)

    return compute


def _cache_positions(
    info: KernelInfo, shape: tuple[int, ...], along: int, length: int, starts: HostArray, *, circular: bool
) -> HostArray:
    """Row numbers of the written sequence positions, in a cache seen as (batch · inner · sequence, rest)."""
    maximum = shape[along]
    steps = starts.reshape(-1, 1) + np.arange(length)
    if circular:
        steps %= maximum
    elif steps.size and (steps.min() < 0 or steps.max() >= maximum):
        raise InvalidArgument(
            f"{info.describe()}: writing {length} positions at {starts.tolist()} leaves the cache of {maximum}; "
            "use mode 'circular' or a larger cache"
        )
    inner = math.prod(shape[1:along])
    firsts = np.arange(shape[0] * inner).reshape(shape[0], inner, 1) * maximum
    return (firsts + steps[:, np.newaxis, :]).reshape(-1)


@operator("TensorScatter", moves=True, host_inputs=(2,))
def tensor_scatter(info: KernelInfo, xp: Any) -> Compute:
    """The cache with ``update`` written at ``write_indices[batch]`` along ``axis``, around its end if ``circular``."""
    axis = info.attribute("axis", -2)
    mode = info.attribute("mode", "linear")
    if mode not in {"linear", "circular"}:
        raise InvalidArgument(f"{info.describe()}: mode is '{mode}'; it must be linear or circular")

    def compute(cache: Array, update: Array, write_indices: HostArray | None = None) -> Array:
        shape = tuple(cache.shape)
        along = normalize_axis(info, axis, len(shape))
        expected = (*shape[:along], update.shape[along] if update.ndim == len(shape) else 0, *shape[along + 1 :])
        if along == 0 or tuple(update.shape) != expected or update.shape[along] > shape[along]:
            raise InvalidArgument(
                f"{info.describe()}: update {update.shape} does not fit cache {shape} along axis {along}; the shapes may only "
                "differ there, the update must not be longer, and axis 0 is the batch"
            )
        starts = np.zeros(shape[0], np.int64) if write_indices is None else write_indices
        positions = _cache_positions(info, shape, along, update.shape[along], starts, circular=mode == "circular")
        rest = shape[along + 1 :]
        rows = xp.reshape(cache, (math.prod(shape[: along + 1]), *rest))
        row_updates = xp.reshape(update, (positions.size, *rest))
        return xp.reshape(xp.scatter(rows, xp.from_host(positions), row_updates), shape)

    return compute
