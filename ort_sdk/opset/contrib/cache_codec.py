"""How GroupQueryAttention stores keys and values: as they are, or as 8- or 4-bit integers with a scale."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.opset.quantization.saturation import saturating_cast

from .packing import pack

__all__ = ["CacheCodec"]

QUANTIZATIONS = ("NONE", "PER_TENSOR", "PER_CHANNEL")
INT8, UINT8, FLOAT = TensorElementType.INT8, TensorElementType.UINT8, TensorElementType.FLOAT
FOUR_BIT_OFFSET = 8
"""What is added to a signed 4-bit integer to store it."""


class CacheCodec:
    """Encodes and decodes one of the two caches.

    Args:
        info: the node.
        xp: array namespace.
        attribute: ``k_quant_type`` or ``v_quant_type``.

    Raises:
        InvalidGraph: the attribute has an unknown value.
    """

    def __init__(self, info: KernelInfo, xp: Any, attribute: str) -> None:
        kind = info.attribute(attribute, "NONE")
        if kind not in QUANTIZATIONS:
            raise InvalidGraph(f"{info.describe()}: attribute '{attribute}' is '{kind}'; it must be one of {QUANTIZATIONS}")
        self._xp = xp
        self._is_plain = kind == "NONE"
        self._bits = int(info.attribute("kv_cache_bit_width", 8) or 8)

    def encode(self, x: Array, scale: Array | None) -> Array:
        """(batch, heads, entries, size) as it is stored; 4-bit integers two to a byte along the last axis, the first low."""
        if self._is_plain:
            return x
        xp = self._xp
        scaled = x / self._laid_out(scale, x.shape[1])
        if self._bits == 8:
            return saturating_cast(xp, scaled, INT8)
        low, high = -FOUR_BIT_OFFSET, FOUR_BIT_OFFSET - 1
        offset = xp.asarray(FOUR_BIT_OFFSET, dtype=scaled.dtype)
        return pack(xp, xp.round_and_clip(scaled, offset, low + FOUR_BIT_OFFSET, high + FOUR_BIT_OFFSET, xp.uint8), 4)

    def decode(self, stored: Array, scale: Array | None) -> Array:
        """Stored entries as floating-point numbers."""
        if self._is_plain:
            return stored
        xp = self._xp
        values = xp.astype(stored, FLOAT) if self._bits == 8 else xp.astype(xp.unpack_bits(stored, 4), FLOAT) - FOUR_BIT_OFFSET
        return values * self._laid_out(scale, stored.shape[1])

    def _laid_out(self, scale: Array | None, heads: int) -> Any:
        """The scale against (batch, heads, entries, size)."""
        if scale is None or math.prod(scale.shape) == 1:
            return 1.0 if scale is None else self._xp.reshape(scale, ())
        return self._xp.reshape(scale, (1, heads, 1, -1))
