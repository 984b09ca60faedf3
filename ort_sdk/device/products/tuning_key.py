"""Keys of tuning: products of the same key have the same fastest form."""

from __future__ import annotations

__all__ = ["TuningKey", "size_bucket"]

TuningKey = tuple[str | int, ...]
"""A word for what is computed, element types, and sizes by ``size_bucket``."""


def size_bucket(size: int) -> int:
    """A size rounded up: none up to 8, then to a quarter of a power of two."""
    if size <= 8:
        return size
    step = 1 << (size - 1).bit_length() - 3
    return -(-size // step) * step
