"""Integers of 2 or 4 bits packed in bytes, lowest bits first, as ONNX Runtime's weight-only operators store them."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array

__all__ = ["pack", "unpack"]


def unpack(xp: Any, packed: Array, bits: int) -> Array:
    """(..., n) bytes as (..., n * 8 / bits) unsigned integers, one in each uint8."""
    if bits == 8:
        return packed
    shifts = xp.asarray(list(range(0, 8, bits)), dtype=xp.uint8)
    mask = xp.asarray(2**bits - 1, dtype=xp.uint8)
    parts = xp.bitwise_and(xp.bitwise_right_shift(xp.expand_dims(packed, axis=-1), shifts), mask)
    return xp.reshape(parts, (*packed.shape[:-1], packed.shape[-1] * (8 // bits)))


def pack(xp: Any, values: Array, bits: int) -> Array:
    """(..., n) unsigned integers of 2 or 4 bits, one in each uint8, as (..., n * bits / 8) bytes."""
    per_byte = 8 // bits
    shifts = xp.asarray(list(range(0, 8, bits)), dtype=xp.uint8)
    parts = xp.bitwise_left_shift(xp.reshape(values, (*values.shape[:-1], -1, per_byte)), shifts)
    return xp.sum(parts, axis=-1, dtype=xp.uint8)
