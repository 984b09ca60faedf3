"""Pow."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo, TensorElementType
from ort_sdk.opset.broadcasting import binary
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("Pow")
def power(info: KernelInfo, xp: Any) -> Compute:
    """X to the power of Y, in the type of X; powers of integers by floats are computed as double and truncated."""
    repeated = _repeated_product(info)
    if repeated is not None:
        return repeated
    base_type, exponent_type = info.input_element_type(0), info.input_element_type(1)
    base_is_float = xp.isdtype(xp.dtype(base_type), "real floating")
    exponent_is_float = xp.isdtype(xp.dtype(exponent_type), "real floating")
    if not base_is_float and not exponent_is_float:
        return _integer_power(info, xp)
    in_double = not base_is_float or exponent_type is TensorElementType.DOUBLE
    work_type = TensorElementType.DOUBLE if in_double else base_type
    if base_type is exponent_type:
        return binary(info, xp, xp.pow)
    pow_, astype = xp.pow, xp.astype
    return lambda x, y: astype(pow_(astype(x, work_type), astype(y, work_type)), base_type)


def _repeated_product(info: KernelInfo) -> Compute | None:
    """The kernel for a constant scalar exponent 2 or 3: general powers are many times slower."""
    exponent, rank = info.constant_input(1), info.input_rank(0)
    if exponent is None or exponent.size != 1 or (exponent.ndim > 0 and (rank is None or rank < exponent.ndim)):
        return None
    value = float(exponent.reshape(()))
    if value == 2:
        return lambda x, _exponent: x * x
    if value == 3:
        return lambda x, _exponent: x * x * x
    return None


def _integer_power(info: KernelInfo, xp: Any) -> Compute:
    """Exact powers modulo the type; a negative exponent leaves 0, but for bases 1 and -1."""
    base_type = info.input_element_type(0)
    astype, pow_, maximum, where = xp.astype, xp.pow, xp.maximum, xp.where
    zero = xp.asarray(0, dtype=xp.dtype(base_type))

    def compute(x: Array, y: Array) -> Array:
        exponent = astype(y, base_type)
        unit_power = where(exponent % 2 == 0, x * x, x)
        inverse = where((x == 1) | (x == -1), unit_power, zero)
        return where(exponent < 0, inverse, pow_(x, maximum(exponent, zero)))

    return compute
