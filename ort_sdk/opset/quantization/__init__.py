"""Operators of the quantization family."""

from . import conv, linear, matmul

__all__ = ["conv", "linear", "matmul"]
