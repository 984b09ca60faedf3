"""The Reduce operators.

Each is three steps: a function of the elements, a reduction, and a function of the result. With no axes and
``noop_with_empty_axes`` only the reduction is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.axes import normalized_axes
from ort_sdk.opset.definition import operator

__all__: list[str] = []

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """What a Reduce operator does."""

    reduce: Callable[[Array, Axes, bool], Array]
    """Elements, axes from the front, keepdims → the reduced array."""
    before: Callable[[Array], Array] | None = None
    after: Callable[[Array], Array] | None = None


ReductionFactory = Callable[[Any, Any], Reduction]
"""Makes the reduction for an element type over an array namespace."""

_AXES_INPUT_SINCE = {"ReduceSum": 13}
"""Version from which axes are an input; 18 for all others."""


def _declare(op_type: str, make: ReductionFactory, *, in_double: bool = False) -> None:
    """Declare both forms of a Reduce operator.

    Args:
        op_type: operator.
        make: its reduction.
        in_double: integers are computed as double and truncated.
    """
    since = _AXES_INPUT_SINCE.get(op_type, 18)

    def factory(info: KernelInfo, xp: Any) -> Compute:
        element_type = info.input_element_type(0)
        if not in_double or xp.isdtype(xp.dtype(element_type), "real floating"):
            return _kernel(info, xp, make(element_type, xp))
        compute, astype = _kernel(info, xp, make(TensorElementType.DOUBLE, xp)), xp.astype
        return lambda x, axes=None: astype(compute(astype(x, TensorElementType.DOUBLE), axes), element_type)

    operator(op_type, until=since - 1)(factory)
    operator(op_type, since=since, host_inputs=(1,), shape_inputs=(1,))(factory)


def _kernel(info: KernelInfo, xp: Any, reduction: Reduction) -> Compute:
    attribute_axes, keepdims = info.attribute("axes", None), bool(info.attribute("keepdims", 1))
    noop = bool(info.attribute("noop_with_empty_axes", 0))
    before, reduce, after = reduction.before, reduction.reduce, reduction.after

    def compute(x: Array, axes: HostArray | None = None) -> Array:
        given = attribute_axes if axes is None else axes.tolist()
        elements = x if before is None else before(x)
        if given:
            reduced = reduce(elements, normalized_axes(given, len(x.shape), info), keepdims)
        elif noop or not x.shape:
            reduced = xp.asarray(elements, copy=True) if elements is x else elements
        else:
            reduced = reduce(elements, tuple(range(len(x.shape))), keepdims)
        return reduced if after is None else after(reduced)

    return compute


def _sum(_element_type: Any, xp: Any) -> Callable[[Array, Axes, bool], Array]:
    total = xp.sum
    return lambda x, axes, keepdims: total(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


def _reduce_sum(element_type: Any, xp: Any) -> Reduction:
    return Reduction(_sum(element_type, xp))


def _reduce_sum_square(element_type: Any, xp: Any) -> Reduction:
    return Reduction(_sum(element_type, xp), before=lambda x: x * x)


def _reduce_l1(element_type: Any, xp: Any) -> Reduction:
    return Reduction(_sum(element_type, xp), before=xp.abs)


def _reduce_l2(element_type: Any, xp: Any) -> Reduction:
    return Reduction(_sum(element_type, xp), before=lambda x: x * x, after=xp.sqrt)


def _reduce_log_sum(element_type: Any, xp: Any) -> Reduction:
    return Reduction(_sum(element_type, xp), after=xp.log)


def _reduce_prod(_element_type: Any, xp: Any) -> Reduction:
    product = xp.prod
    return Reduction(lambda x, axes, keepdims: product(x, axis=axes, dtype=x.dtype, keepdims=keepdims))


def _reduce_mean(element_type: Any, xp: Any) -> Reduction:
    """Mean; of integers, truncated towards zero."""
    mean, total = xp.mean, _sum(element_type, xp)
    if xp.isdtype(xp.dtype(element_type), "real floating"):
        return Reduction(lambda x, axes, keepdims: mean(x, axis=axes, keepdims=keepdims))

    def integer_mean(x: Array, axes: Axes, keepdims: bool) -> Array:
        count = math.prod(x.shape[axis] for axis in axes)
        sums = total(x, axes, keepdims)
        quotient = sums // count
        return quotient + xp.astype((sums < 0) & (quotient * count != sums), element_type)

    return Reduction(integer_mean)


def _reduce_extreme(standard_name: str, bool_name: str, *, is_max: bool) -> ReductionFactory:
    """Max or Min; over no elements the value that any element would replace."""

    def make(element_type: Any, xp: Any) -> Reduction:
        dtype = xp.dtype(element_type)
        if element_type is TensorElementType.BOOL:
            function = getattr(xp, bool_name)
            return Reduction(lambda x, axes, keepdims: function(x, axis=axes, keepdims=keepdims))
        extreme = getattr(xp, standard_name)
        identity = _identity(dtype, is_max, xp)

        def reduce(x: Array, axes: Axes, keepdims: bool) -> Array:
            if 0 in x.shape:
                return xp.full(_reduced_shape(x.shape, axes, keepdims), identity, dtype=dtype)
            return extreme(x, axis=axes, keepdims=keepdims)

        return Reduction(reduce)

    return make


def _identity(dtype: Any, is_max: bool, xp: Any) -> float:
    if xp.isdtype(dtype, "real floating"):
        return -math.inf if is_max else math.inf
    limits = xp.iinfo(dtype)
    return int(limits.min if is_max else limits.max)


def _reduced_shape(shape: tuple[int, ...], axes: Axes, keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _reduce_log_sum_exp(element_type: Any, xp: Any) -> Reduction:
    """Logarithm of the sum of exponentials, shifted by the largest element so that none overflows."""
    exp, log, maximum, total = xp.exp, xp.log, xp.max, _sum(element_type, xp)
    zero = xp.asarray(0, dtype=xp.dtype(element_type))

    def reduce(x: Array, axes: Axes, keepdims: bool) -> Array:
        if 0 in x.shape:
            return log(total(x, axes, keepdims))
        largest = maximum(x, axis=axes, keepdims=True)
        largest = xp.where(xp.isfinite(largest), largest, zero)
        result = log(total(exp(x - largest), axes, True)) + largest
        return result if keepdims else xp.reshape(result, _reduced_shape(x.shape, axes, keepdims))

    return Reduction(reduce)


_declare("ReduceSum", _reduce_sum)
_declare("ReduceSumSquare", _reduce_sum_square)
_declare("ReduceL1", _reduce_l1)
_declare("ReduceL2", _reduce_l2, in_double=True)
_declare("ReduceLogSum", _reduce_log_sum, in_double=True)
_declare("ReduceLogSumExp", _reduce_log_sum_exp, in_double=True)
_declare("ReduceProd", _reduce_prod)
_declare("ReduceMean", _reduce_mean)
_declare("ReduceMax", _reduce_extreme("max", "any", is_max=True))
_declare("ReduceMin", _reduce_extreme("min", "all", is_max=False))
