"""Add, Sub, Mul and Div. Integers wrap around."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.broadcasting import binary
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("Add")
def add(info: KernelInfo, xp: Any) -> Compute:
    """A + B."""
    return binary(info, xp, xp.add)


@operator("Sub")
def sub(info: KernelInfo, xp: Any) -> Compute:
    """A - B."""
    return binary(info, xp, xp.subtract)


@operator("Mul")
def mul(info: KernelInfo, xp: Any) -> Compute:
    """A · B."""
    return binary(info, xp, xp.multiply)


@operator("Div")
def div(info: KernelInfo, xp: Any) -> Compute:
    """A / B; quotients of integers are truncated towards zero."""
    dtype = xp.dtype(info.input_element_type(0))
    if xp.isdtype(dtype, "real floating"):
        return binary(info, xp, xp.divide)
    floor_divide, astype, element_type = xp.floor_divide, xp.astype, info.input_element_type(0)
    if xp.isdtype(dtype, "unsigned integer"):
        return binary(info, xp, floor_divide)

    def truncated(a: Array, b: Array) -> Array:
        quotient = floor_divide(a, b)
        rounded_down = ((a ^ b) < 0) & (quotient * b != a)
        return quotient + astype(rounded_down, element_type)

    return binary(info, xp, truncated)
