"""Convolutions of 8-bit data by vectors."""

from __future__ import annotations

from .windows import declare_convolutions

__all__ = ["MODULE"]

MODULE = "quantized.conv.vnni"

declare_convolutions(MODULE, on_amx=False)
