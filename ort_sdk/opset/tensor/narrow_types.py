"""Conversion to types narrower than NumPy's own: float8, float4, float6, e8m0 scales and sub-byte integers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, TensorElementType

__all__ = ["NARROW_INTEGERS", "SATURATING_FLOATS", "same_bits", "to_e8m0", "to_narrow_float", "to_narrow_integer"]

NARROW_INTEGERS = frozenset({TensorElementType.INT4, TensorElementType.UINT4, TensorElementType.INT2, TensorElementType.UINT2})
SATURATING_FLOATS = frozenset(
    {
        TensorElementType.FLOAT8E4M3FN,
        TensorElementType.FLOAT8E4M3FNUZ,
        TensorElementType.FLOAT8E5M2,
        TensorElementType.FLOAT8E5M2FNUZ,
        TensorElementType.FLOAT4E2M1,
        TensorElementType.FLOAT6E2M3,
        TensorElementType.FLOAT6E3M2,
    }
)


def to_narrow_integer(values: HostArray, target: TensorElementType) -> HostArray:
    """Integers (or numbers that were truncated to integers) with the bits that do not fit discarded."""
    spare = 8 - target.bit_width
    low = values.astype(np.uint8) << spare
    if target in {TensorElementType.INT4, TensorElementType.INT2}:
        return (low.view(np.int8) >> spare).astype(target.numpy_dtype)
    return (low >> spare).astype(target.numpy_dtype)


def same_bits(values: HostArray, target: TensorElementType) -> HostArray:
    """A new NumPy array of the same bits as elements of another type of the same width."""
    if not target.is_packed:
        return values.copy().view(target.numpy_dtype)
    bits = values.view(np.uint8) & (2**target.bit_width - 1)
    return to_narrow_integer(bits, target) if target in NARROW_INTEGERS else bits.view(target.numpy_dtype)


@functools.cache
def _largest(target: TensorElementType) -> np.float32:
    import ml_dtypes

    return np.float32(ml_dtypes.finfo(target.numpy_dtype).max)


def to_narrow_float(values: HostArray, target: TensorElementType, *, saturate: bool) -> HostArray:
    """float32 values rounded to nearest even; beyond the largest finite number they saturate, or become NaN or infinite.

    float4 and float6 have neither NaN nor infinity: they always saturate, and NaN becomes -0.
    """
    largest = _largest(target)
    saturate = saturate or target.bit_width < 8
    return (np.clip(values, -largest, largest) if saturate else values).astype(target.numpy_dtype)


_ROUND_UP: dict[str, Callable[[HostArray, int], HostArray]] = {
    "up": lambda mantissa, _: mantissa > 0,
    "down": lambda mantissa, _: mantissa < 0,
    "nearest": lambda mantissa, half: mantissa >= half,
}
"""Rounding mode → whether a mantissa remainder goes to the next power of two."""


def to_e8m0(values: HostArray, *, saturate: bool, round_mode: str) -> HostArray:
    """Powers of two next to float32 magnitudes, as float8e8m0: 2^-127 … 2^127, and NaN.

    Raises:
        InvalidArgument: ``round_mode`` is none of up, down and nearest.
    """
    if round_mode not in _ROUND_UP:
        raise InvalidArgument(f"round_mode '{round_mode}' of a cast to float8e8m0 must be one of {', '.join(_ROUND_UP)}")
    bits = values.view(np.uint32)
    exponent, mantissa = (bits >> 23 & 0xFF).astype(np.int32), (bits & 0x7FFFFF).astype(np.int32)
    subnormal = exponent == 0
    too_small = subnormal & (mantissa < 0x400000)
    mantissa = np.where(subnormal, (mantissa - 0x400000) * 2, mantissa)
    code = exponent + _ROUND_UP[round_mode](mantissa, 0x400000)
    code = np.where(too_small, 0 if saturate else 0xFF, code)
    code = np.where(code > 0xFE, 0xFE if saturate else 0xFF, code)
    code = np.where(np.isnan(values), 0xFF, code)
    return code.astype(np.uint8).view(TensorElementType.FLOAT8E8M0.numpy_dtype)
