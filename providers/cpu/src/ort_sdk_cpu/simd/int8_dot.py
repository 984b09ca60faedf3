"""See int8."""

from __future__ import annotations

from .int8 import add_products_u8_i8, emit_products

__all__ = ["add_products_u8_i8", "emit_products"]
