"""Where, NonZero, Compress, OneHot and Trilu: elements kept by a condition."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

from .common import is_text, normalize_axis, zero_of

__all__ = ["compress", "nonzero", "one_hot", "trilu", "where"]


@operator("Where", moves=True)
def where(_info: KernelInfo, xp: Any) -> Compute:
    """X where the condition holds, else Y; the three broadcast together."""
    function: Compute = xp.where
    return function


@operator("NonZero", any_type=True, shape_inputs=None)
def nonzero(_info: KernelInfo, xp: Any) -> Compute:
    """int64 coordinates (rank, count) of the nonzero elements, in row-major order; a scalar counts as a vector."""
    find, stack = xp.nonzero, xp.stack

    def compute(x: Array) -> Array:
        return xp.astype(stack(find(x if x.ndim else xp.reshape(x, (1,)))), TensorElementType.INT64)

    return compute


@operator("Compress", moves=True, shape_inputs=None)
def compress(info: KernelInfo, xp: Any) -> Compute:
    """Slices along ``axis`` (elements of the flattened input without one) whose condition holds.

    A condition shorter than the axis drops the rest.
    """
    axis = info.attribute("axis", None)

    def compute(x: Array, condition: Array) -> Array:
        along = 0 if axis is None else normalize_axis(info, axis, x.ndim)
        if axis is None:
            x = xp.reshape(x, (-1,))
        (kept,) = xp.nonzero(condition[: min(condition.shape[0], x.shape[along])])
        return xp.gather(x, kept, along)

    return compute


@operator("OneHot", any_type=True, shape_inputs=(1,), host_inputs=(1,))
def one_hot(info: KernelInfo, xp: Any) -> Compute:
    """A new axis of ``depth`` elements: values[1] at the index, values[0] elsewhere and for indices out of range."""
    axis = info.attribute("axis", -1)

    def compute(indices: Array, depth: HostArray, values: Array) -> Array:
        if math.prod(depth.shape) != 1 or int(depth.reshape(-1)[0]) < 0 or values.shape != (2,):
            raise InvalidArgument(
                f"{info.describe()}: depth {depth.tolist()} must be one number ≥ 0 and values {values.shape} two elements"
            )
        count = int(depth.reshape(-1)[0])
        along = normalize_axis(info, axis, indices.ndim + 1)
        require_size(info.describe(), (*indices.shape, count), max(item_bytes(values.dtype), item_bytes(xp.int64)))
        classes = xp.reshape(xp.arange(count, dtype=xp.int64), (count, *(1,) * (indices.ndim - along)))
        wide = xp.astype(indices, TensorElementType.INT64)
        hot = xp.expand_dims(xp.where(wide < 0, wide + count, wide), axis=along) == classes
        return xp.where(hot, values[1:2] if hot.ndim else values[1], values[0:1] if hot.ndim else values[0])

    return compute


@operator("Trilu", moves=True, host_inputs=(1,))
def trilu(info: KernelInfo, xp: Any) -> Compute:
    """The upper (or lower) triangle of each matrix from its diagonal ``k`` on, zeros elsewhere."""
    cut = xp.triu if info.attribute("upper", 1) else xp.tril

    def compute(x: Array, k: HostArray | None = None) -> Array:
        if x.ndim < 2:
            raise InvalidArgument(f"{info.describe()}: the input has shape {x.shape}; it must have at least two dimensions")
        diagonal = 0 if k is None else int(k.reshape(-1)[0])
        if not is_text(x.dtype):
            return cut(x, k=diagonal)
        return xp.where(cut(xp.ones(x.shape[-2:], dtype=xp.bool), k=diagonal), x, zero_of(xp, x.dtype))

    return compute
