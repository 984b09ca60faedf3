"""What is told apart where forms of a product are compared."""

from __future__ import annotations

__all__ = ["TuningKey", "size_bucket"]

TuningKey = tuple[str | int, ...]
"""A word for what is computed, element types, and sizes by ``size_bucket``."""


def size_bucket(size: int) -> int:
    """The least of the sizes that are told apart and not below this one: all up to 8, then four for each power of two."""
    if size <= 8:
        return size
    step = 1 << (size - 1).bit_length() - 3
    return -(-size // step) * step
