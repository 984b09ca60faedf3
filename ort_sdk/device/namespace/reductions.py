"""The standard's reductions, searches and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device import arithmetic, indexing
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import HALF_TYPES, is_floating
from ort_sdk.device.expressions.nodes import Constant, element_count
from ort_sdk.device.rows.reduction import find_position, reduce_rows
from ort_sdk.device.rows.scan import scan

__all__ = ["REDUCTIONS", "positions"]

_Axes = int | Sequence[int] | None
_BOOL, _INT64 = TensorElementType.BOOL, TensorElementType.INT64


def _axes(axis: _Axes, rank: int) -> list[int]:
    if axis is None:
        return list(range(rank))
    given = [axis] if isinstance(axis, int) else list(axis)
    if any(not -rank <= each < rank for each in given):
        raise InvalidArgument(f"reducing axes {given} of an array of {rank} axes")
    return sorted({each % rank for each in given})


def _reduced(
    name: str,
    x: DeviceArray,
    axis: _Axes,
    keepdims: bool,
    element_type: TensorElementType,
    start: float | None,
) -> DeviceArray:
    context, axes = x.context, _axes(axis, x.ndim)
    kept = tuple(size for own, size in enumerate(x.shape) if own not in axes)
    whole = tuple(1 if own in axes else size for own, size in enumerate(x.shape))
    if x.size == 0 or not axes:
        return x.made(_of_nothing(x, axes, whole if keepdims else kept, element_type, start))
    output = context.new(kept, element_type)
    reduce_rows(context, name, x.node, axes, output)
    return x.made(output if not keepdims else indexing.reshaped(context, output, whole))


def _of_nothing(
    x: DeviceArray, axes: Sequence[int], shape: tuple[int, ...], element_type: TensorElementType, start: float | None
) -> Any:
    if not axes:
        return arithmetic.cast_node(x.context, x.node, element_type)
    if start is None and 0 not in shape:
        raise InvalidArgument(f"reducing axes {list(axes)} of shape {list(x.shape)}: the largest or smallest of no elements")
    return Constant(start or 0, shape, element_type)


def _sum_type(x: DeviceArray, dtype: Any) -> TensorElementType:
    if dtype is not None:
        return TensorElementType.from_numpy_dtype(np.dtype(dtype))
    if is_floating(x.element_type):
        return x.element_type
    return TensorElementType.UINT64 if x.element_type.name.startswith("UINT") else _INT64


def sum_(x: DeviceArray, /, *, axis: _Axes = None, dtype: Any = None, keepdims: bool = False) -> DeviceArray:
    """Sums; of integers in 64 bits."""
    target = _sum_type(x, dtype)
    return _reduced("sum", arithmetic.cast(x, target), axis, keepdims, target, 0)


def prod(x: DeviceArray, /, *, axis: _Axes = None, dtype: Any = None, keepdims: bool = False) -> DeviceArray:
    """Products; of integers in 64 bits."""
    target = _sum_type(x, dtype)
    return _reduced("prod", arithmetic.cast(x, target), axis, keepdims, target, 1)


def max_(x: DeviceArray, /, *, axis: _Axes = None, keepdims: bool = False) -> DeviceArray:
    """The largest elements; NaN if there is one."""
    return _reduced("max", x, axis, keepdims, x.element_type, None)


def min_(x: DeviceArray, /, *, axis: _Axes = None, keepdims: bool = False) -> DeviceArray:
    """The smallest elements; NaN if there is one."""
    return _reduced("min", x, axis, keepdims, x.element_type, None)


def any_(x: DeviceArray, /, *, axis: _Axes = None, keepdims: bool = False) -> DeviceArray:
    """Whether one is true."""
    return _reduced("any", arithmetic.cast(x, _BOOL), axis, keepdims, _BOOL, 0)


def all_(x: DeviceArray, /, *, axis: _Axes = None, keepdims: bool = False) -> DeviceArray:
    """Whether all are true."""
    return _reduced("all", arithmetic.cast(x, _BOOL), axis, keepdims, _BOOL, 1)


def mean(x: DeviceArray, /, *, axis: _Axes = None, keepdims: bool = False) -> DeviceArray:
    """Averages; NaN of nothing."""
    count = element_count([x.shape[own] for own in _axes(axis, x.ndim)])
    return sum_(x, axis=axis, keepdims=keepdims) / x.made(Constant(float(count), (), x.element_type))


def var(x: DeviceArray, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False) -> DeviceArray:
    """Variances, about the average."""
    count = element_count([x.shape[own] for own in _axes(axis, x.ndim)])
    distance = x - mean(x, axis=axis, keepdims=True)
    return sum_(distance * distance, axis=axis, keepdims=keepdims) / max(count - correction, 0.0)


def std(x: DeviceArray, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False) -> DeviceArray:
    """Square roots of variances."""
    return arithmetic.unary("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


def positions(combination: str, x: DeviceArray, axis: int | None, keepdims: bool, *, last: bool = False) -> DeviceArray:
    """Positions of the largest or smallest elements along an axis, or, without one, in the whole array.

    Args:
        combination: ``max`` or ``min``.
        x: array.
        axis: that is searched.
        keepdims: whether the axis stays, with size 1.
        last: of equal elements the last, and not the first.
    """
    if axis is None:
        flat = x.made(indexing.reshaped(x.context, x.node, (-1,)))
        found = positions(combination, flat, 0, False, last=last)
        return found.made(indexing.reshaped(x.context, found.node, (1,) * x.ndim)) if keepdims else found
    context, (along,) = x.context, _axes(axis, x.ndim)
    kept = tuple(size for own, size in enumerate(x.shape) if own != along)
    shape = tuple(1 if own == along else size for own, size in enumerate(x.shape)) if keepdims else kept
    if x.size == 0:
        if 0 not in kept:
            raise InvalidArgument(f"searching axis {axis} of shape {list(x.shape)}: it has no elements")
        return x.made(Constant(0, shape, _INT64))
    output = context.new(kept, _INT64)
    find_position(context, combination, x.node, along, output, last=last)
    return x.made(indexing.reshaped(context, output, shape))


def argmax(x: DeviceArray, /, *, axis: int | None = None, keepdims: bool = False) -> DeviceArray:
    """Positions of the largest elements; the first of equal ones."""
    return positions("max", x, axis, keepdims)


def argmin(x: DeviceArray, /, *, axis: int | None = None, keepdims: bool = False) -> DeviceArray:
    """Positions of the smallest elements; the first of equal ones."""
    return positions("min", x, axis, keepdims)


def _running(name: str, x: DeviceArray, axis: int | None, dtype: Any, include_initial: bool) -> DeviceArray:
    if axis is None and x.ndim != 1:
        raise InvalidArgument(f"running {name} of an array of shape {list(x.shape)}: name an axis")
    (place,) = _axes(0 if axis is None else axis, x.ndim)
    element_type = _sum_type(x, dtype)
    computed = TensorElementType.FLOAT if element_type in HALF_TYPES else element_type
    context, output = x.context, x.context.new(x.shape, computed)
    if x.size:
        source = context.dense(arithmetic.cast_node(context, x.node, computed))
        scan(context, source, place, output, product=name == "prod")
    result = arithmetic.cast(x.made(output), element_type)
    if not include_initial:
        return result
    from .movement import concat

    shape = (*x.shape[:place], 1, *x.shape[place + 1 :])
    return concat([x.made(Constant(0 if name == "sum" else 1, shape, element_type)), result], axis=place)


def cumulative_sum(
    x: DeviceArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> DeviceArray:
    """Running sums."""
    return _running("sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: DeviceArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> DeviceArray:
    """Running products."""
    return _running("prod", x, axis, dtype, include_initial)


REDUCTIONS = {
    "sum": sum_,
    "prod": prod,
    "max": max_,
    "min": min_,
    "any": any_,
    "all": all_,
    "mean": mean,
    "var": var,
    "std": std,
    "argmax": argmax,
    "argmin": argmin,
    "cumulative_sum": cumulative_sum,
    "cumulative_prod": cumulative_prod,
}
"""Name in the standard → function."""
