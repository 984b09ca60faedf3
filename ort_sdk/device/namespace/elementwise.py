"""The standard's element-wise functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import is_floating

__all__ = ["ELEMENTWISE"]

_BOOL = TensorElementType.BOOL
_UNARY = (
    "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
    " negative square reciprocal sign sigmoid"
)
_BINARY = (
    "add subtract multiply divide floor_divide remainder fmod minimum maximum copysign atan2 hypot"
    " bitwise_left_shift bitwise_right_shift"
)
_COMPARE = "equal not_equal less less_equal greater greater_equal"


def _rounding(name: str) -> Callable[[DeviceArray], DeviceArray]:
    def apply(x: DeviceArray) -> DeviceArray:
        return arithmetic.unary(name, x) if is_floating(x.element_type) else x

    return apply


def absolute(x: DeviceArray) -> DeviceArray:
    """``abs``; of a bool or an unsigned integer the array itself."""
    return x if x.element_type is _BOOL or x.element_type.name.startswith("UINT") else arithmetic.unary("abs", x)


def logaddexp(x1: Any, x2: Any) -> DeviceArray:
    """``log(exp(x1) + exp(x2))`` without overflow."""
    largest = arithmetic.binary("maximum", x1, x2)
    least = arithmetic.binary("minimum", x1, x2)
    distance = arithmetic.binary("subtract", least, largest)
    summed = largest + arithmetic.unary("log1p", arithmetic.unary("exp", distance))
    # equal infinities: their distance is no number
    return arithmetic.select(arithmetic.compare("equal", least, largest), largest + 0.6931471805599453, summed)


def clip(x: DeviceArray, /, min: Any = None, max: Any = None) -> DeviceArray:
    """``x`` between two bounds, each of which may be left out."""
    if min is not None:
        x = arithmetic.binary("maximum", x, min)
    return x if max is None else arithmetic.binary("minimum", x, max)


def logical(name: str) -> Callable[[DeviceArray, DeviceArray], DeviceArray]:
    """``and``, ``or`` or ``xor`` of arrays taken for bools."""

    def apply(x1: DeviceArray, x2: DeviceArray) -> DeviceArray:
        return arithmetic.bitwise(name, arithmetic.cast(x1, _BOOL), arithmetic.cast(x2, _BOOL))

    return apply


def logical_not(x: DeviceArray) -> DeviceArray:
    """Whether elements are zero."""
    return arithmetic.unary("logical_not", arithmetic.cast(x, _BOOL))


ELEMENTWISE: dict[str, Callable[..., DeviceArray]] = {
    **{name: functools.partial(arithmetic.unary, name) for name in _UNARY.split()},
    **{name: functools.partial(arithmetic.binary, name) for name in _BINARY.split()},
    **{name: functools.partial(arithmetic.compare, name) for name in _COMPARE.split()},
    **{name: functools.partial(arithmetic.predicate, name) for name in ("isnan", "isinf", "isfinite")},
    **{f"bitwise_{name}": functools.partial(arithmetic.bitwise, name) for name in ("and", "or", "xor")},
    **{f"logical_{name}": logical(name) for name in ("and", "or", "xor")},
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "round": _rounding("rint"),
    "abs": absolute,
    "positive": lambda x: x,
    "pow": arithmetic.power,
    "where": arithmetic.select,
    "bitwise_invert": arithmetic.invert,
    "logical_not": logical_not,
    "logaddexp": logaddexp,
    "clip": clip,
}
"""Name in the standard → function."""
