"""Convolutions of 8-bit data by a processor's matrix unit (AMX)."""

from __future__ import annotations

from .windows import declare_convolutions

__all__ = ["MODULE"]

MODULE = "quantized.conv.amx"

declare_convolutions(MODULE, on_amx=True)
