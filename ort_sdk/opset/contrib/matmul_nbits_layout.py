"""What constants of quantized operators are called when they are derived from those of a DequantizeLinear node.

A derived tensor whose ``transformation`` starts with one of these texts (parameters follow) has the tensor that
DequantizeLinear read as its ``sources[0]``, with its element type and shape. A kernel may read the source in place instead of
asking for the derived elements. With K, N, bits and block_size of the MatMulNBits node and k_blocks = ceil(K / block_size):
"""

from __future__ import annotations

__all__ = [
    "DATA_FROM_INT8",
    "SCALES_FROM_DEQUANTIZE_LINEAR",
    "WEIGHT_FROM_DEQUANTIZE_LINEAR",
    "ZERO_POINTS_FROM_DEQUANTIZE_LINEAR",
]

WEIGHT_FROM_DEQUANTIZE_LINEAR = "MatMulNBits weight of DequantizeLinear"
"""Source: [K, N] of int2, uint2, int4, uint4, int8 or uint8. Result: uint8 [N, k_blocks, block_size * bits / 8], elements of one
column packed along K, lowest bits first; signed ones raised by 2**(bits - 1); zero bytes behind the last element of K."""
SCALES_FROM_DEQUANTIZE_LINEAR = "MatMulNBits scales of DequantizeLinear"
"""Source: [k_blocks, N], [N] (one for each column) or [] of float or float16. Result: [N, k_blocks] of the same type."""
ZERO_POINTS_FROM_DEQUANTIZE_LINEAR = "MatMulNBits zero points of DequantizeLinear"
"""Source: the weight's element type, of the shape of the scales; a scalar 0 where an unsigned weight has no zero points.
Result: uint8 [N, ceil(k_blocks * bits / 8)], those of one column packed along the blocks; signed ones raised as the weight."""
DATA_FROM_INT8 = "GatherBlockQuantized data of int8"
"""Source: int8 data, or zero points. Result: uint8 of the same shape, raised by 128."""
