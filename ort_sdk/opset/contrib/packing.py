"""Integers of 2 or 4 bits packed in bytes, lowest bits first, as ONNX Runtime's weight-only operators store them."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array

__all__ = ["pack"]


def pack(xp: Any, values: Array, bits: int) -> Array:
    """(..., n) unsigned integers of 2 or 4 bits, one in each uint8, as (..., n * bits / 8) bytes."""
    per_byte = 8 // bits
    shifts = xp.asarray(list(range(0, 8, bits)), dtype=xp.uint8)
    parts = xp.bitwise_left_shift(xp.reshape(values, (*values.shape[:-1], -1, per_byte)), shifts)
    return xp.sum(parts, axis=-1, dtype=xp.uint8)
