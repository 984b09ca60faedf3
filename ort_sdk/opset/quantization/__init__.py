"""Operators of the quantization family."""
