"""Dot products with rows of a weight [N, k_blocks, bytes] number by number, as is right for activations with infinities."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, reduce_add, splat_f32, splat_i32, subtract, to_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, read_f32
from ort_sdk_cpu.simd.shuffles import lookup

__all__ = ["dequantized_dot", "has_finite_sum"]


@inline
def has_finite_sum(args: MatMulNBits, row: int, blocks: int) -> Any:
    """Whether the sum of a row of activations is no infinity or NaN; it is behind those of the blocks."""
    whole = read_f32(args.x_sums + row * args.block_stride + blocks * 4)
    # Infinity less infinity, and NaN less anything, are NaN.
    return whole - whole == 0


def dequantized_dot(bits: int) -> Any:
    """Function that multiplies a row of activations as they are with a row of the weight, which it dequantises."""
    first_codes, half = FIRST_CODES[bits], np.float32(1 << (bits - 1))

    @inline
    def zero_points(args: MatMulNBits, column: int, first: int, count: int) -> Any:
        kind, place = args.zero_points_kind, args.zero_points + column * args.zero_points_stride
        if kind == 0:
            return splat_f32(half)
        if kind == 2:
            return load_f32_masked(place + first * 4, count)
        return to_f32(first_codes(place + first * bits // 8, count))

    @inline
    def dot(args: MatMulNBits, column: int, row: int, blocks: int) -> Any:
        block, k, total = args.block_size, args.k, zero_f32()
        codes, x = args.codes + column * blocks * block * bits // 8, args.activations + row * k * 4
        for first in range(0, blocks, 16):
            count, points = min(blocks - first, 16), zero_points(args, column, first, blocks - first)
            scales = load_f32_masked(args.scales + (column * blocks + first) * 4, blocks - first)
            # Slow, but of rows with infinities only: sums of quantized or reordered numbers would give NaN where float32 gives
            # infinity.
            for number in range(count):
                lane, start = splat_i32(np.int32(number)), (first + number) * block
                for element in range(start, min(start + block, k), 16):
                    code = to_f32(first_codes(codes + element * bits // 8, k - element))
                    weight = multiply(subtract(code, lookup(points, lane)), lookup(scales, lane))
                    total = fused_multiply_add(weight, load_f32_masked(x + element * 4, k - element), total)
        return reduce_add(total)

    return dot
