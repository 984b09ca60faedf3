"""See int8."""

from __future__ import annotations

from .int8 import (
    BYTES,
    I8X64,
    broadcast_u8,
    emit_load_bytes_first,
    emit_store_bytes_first,
    emit_store_part,
    load_bytes_first,
    lookup_bytes,
    store_bytes_first,
    store_i8_first,
)

__all__ = [
    "BYTES",
    "I8X64",
    "broadcast_u8",
    "emit_load_bytes_first",
    "emit_store_bytes_first",
    "emit_store_part",
    "load_bytes_first",
    "lookup_bytes",
    "store_bytes_first",
    "store_i8_first",
]
