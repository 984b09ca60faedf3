"""Mod."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

__all__: list[str] = []


@operator("Mod")
def mod(info: KernelInfo, xp: Any) -> Compute:
    """Remainder with the sign of the divisor, or of the dividend if ``fmod`` is set."""
    fmod = bool(info.attribute("fmod", 0))
    element_type = info.input_element_type(0)
    is_float = xp.isdtype(xp.dtype(element_type), "real floating")
    if is_float and not fmod and info.since_version < 28:
        raise InvalidGraph(f"{info.describe()}: attribute fmod must be 1 for floating-point inputs before version 28; it is 0")
    remainder: Compute = xp.remainder
    if not fmod:
        return remainder
    return _float_fmod(xp) if is_float else _integer_fmod(xp)


def _float_fmod(xp: Any) -> Compute:
    absolute, copysign, remainder = xp.abs, xp.copysign, xp.remainder
    return lambda a, b: copysign(remainder(absolute(a), absolute(b)), a)


def _integer_fmod(xp: Any) -> Compute:
    remainder, where = xp.remainder, xp.where

    def compute(a: Array, b: Array) -> Array:
        result = remainder(a, b)
        wrong_sign = (result != 0) & ((result < 0) != (a < 0))
        return where(wrong_sign, result - b, result)

    return compute
