"""Ranges of quantized types, and the cast into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, TensorElementType

__all__ = ["is_integer", "quantized_range", "saturating_cast"]


def is_integer(element_type: TensorElementType) -> bool:
    """Whether quantized values are integers (else one of the narrow floating-point types)."""
    return "INT" in element_type.name


def quantized_range(element_type: TensorElementType) -> tuple[float, float]:
    """Lowest and highest finite value of a quantized type."""
    if is_integer(element_type):
        bits = element_type.bit_width
        return (0, 2**bits - 1) if element_type.name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    import ml_dtypes

    limits = ml_dtypes.finfo(element_type.numpy_dtype)
    return float(limits.min), float(limits.max)


def saturating_cast(xp: Any, values: Array, element_type: TensorElementType, zero_point: Array | None = None) -> Array:
    """Real values rounded half to even, moved by the zero point, clipped to the type's range and cast.

    Args:
        xp: array namespace.
        values: floating-point array made by the caller, which may be overwritten.
        element_type: an integer type of at most 16 bits.
        zero_point: floating-point array that broadcasts against ``values``; None for 0.
    """
    low, high = quantized_range(element_type)
    return xp.round_and_clip(values, zero_point, low, high, xp.dtype(element_type))


def float_cast(xp: Any, values: Array, element_type: TensorElementType, *, saturate: bool) -> Array:
    """Real values cast to a floating-point type of 8 bits or fewer.

    Args:
        xp: array namespace.
        values: floating-point array.
        element_type: a float8 or float4 type.
        saturate: finite values and infinities out of range become the largest finite value; otherwise NaN or infinity,
            as the type has.
    """
    if saturate and xp.is_host:
        low, high = quantized_range(element_type)
        values = np.clip(values, low, high)
    return xp.astype(values, element_type) if xp.is_host else xp.converted(values, element_type, saturate=saturate)
