"""Operators of the com.microsoft domain, and those ONNX Runtime adds to ai.onnx."""

from . import (
    embedding,
    gather_block_quantized,
    gelu,
    matmul_nbits,
    normalization,
    quantized_elementwise,
    quantized_matmul,
)

__all__ = [
    "embedding",
    "gather_block_quantized",
    "gelu",
    "matmul_nbits",
    "normalization",
    "quantized_elementwise",
    "quantized_matmul",
]
