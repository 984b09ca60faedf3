"""See heap."""

from __future__ import annotations

from .heap import lowest_bit, order_of

__all__ = ["lowest_bit", "order_of"]
