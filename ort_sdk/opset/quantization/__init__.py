"""Operators of the quantization family."""

from . import linear, matmul

__all__ = ["linear", "matmul"]
