"""Operators of the com.microsoft domain, and those ONNX Runtime adds to ai.onnx."""

from . import quantized_elementwise, quantized_matmul

__all__ = ["quantized_elementwise", "quantized_matmul"]
