"""See transpose."""

from __future__ import annotations

from .transpose import deinterleave, interleave

__all__ = ["deinterleave", "interleave"]
