"""Attention as kernels of its own: scores, softmax and values in one pass over the keys."""

from .attend import attend

__all__ = ["attend"]
