"""Operators of the com.microsoft domain, and those ONNX Runtime adds to ai.onnx."""

from . import (
    attention,
    conv,
    embedding,
    fused_matmul,
    gather_block_quantized,
    gelu,
    group_query_attention,
    legacy,
    matmul_nbits,
    multi_head_attention,
    normalization,
    numeric,
    quantized_elementwise,
    quantized_matmul,
    rotary,
    tensor_ops,
)

__all__ = [
    "attention",
    "conv",
    "embedding",
    "fused_matmul",
    "gather_block_quantized",
    "gelu",
    "group_query_attention",
    "legacy",
    "matmul_nbits",
    "multi_head_attention",
    "normalization",
    "numeric",
    "quantized_elementwise",
    "quantized_matmul",
    "rotary",
    "tensor_ops",
]
