"""Operators of the com.microsoft domain, and those ONNX Runtime adds to ai.onnx."""

from . import (
    attention,
    embedding,
    gather_block_quantized,
    gelu,
    group_query_attention,
    matmul_nbits,
    multi_head_attention,
    normalization,
    quantized_elementwise,
    quantized_matmul,
    rotary,
)

__all__ = [
    "attention",
    "embedding",
    "gather_block_quantized",
    "gelu",
    "group_query_attention",
    "matmul_nbits",
    "multi_head_attention",
    "normalization",
    "quantized_elementwise",
    "quantized_matmul",
    "rotary",
]
