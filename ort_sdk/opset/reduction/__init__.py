"""Operators of the reduction family."""

from . import arg, reduce, topk

__all__ = ["arg", "reduce", "topk"]
