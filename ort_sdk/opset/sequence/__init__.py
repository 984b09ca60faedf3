"""Operators of the sequence family: sequences of tensors, and optional values."""

from . import optional, sequence, split_concat

__all__ = ["optional", "sequence", "split_concat"]
