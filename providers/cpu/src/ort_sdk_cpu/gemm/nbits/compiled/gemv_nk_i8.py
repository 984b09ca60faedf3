"""GEMV of MatMulNBits over an NK weight for few rows of activations: int8 dot products.

A weight's row is read in place, 64 bytes at a time, a *span*: 16 lanes of 4 bytes, which belong to one block or several.
Sixteen blocks, a *group*, are ``lanes`` spans, where ``lanes`` is the number of 4-byte lanes of a block.

Two rows are read side by side, so that activations are loaded once for both. They lie far apart: each is the next of a long run
of rows, which processors foresee.

Without zero points, they are half the codes' range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.dot_i8 import span_operations
from ort_sdk_cpu.gemm.nbits.microkernels.row_pairs import load_code_pair, load_half_scale_pair, load_scale_pair
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.arithmetic import multiply, splat_f32, to_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, load_i32, prefetch_l2, read_f32

__all__ = ["gemv_nk_i8_2", "gemv_nk_i8_4", "gemv_nk_i8_8"]

_MANY, _TWO, _ONE = 4, 2, 1
"""Rows of activations that are multiplied at a time."""
_AHEAD_OF_ZERO_POINTS = 2048
"""Bytes ahead of the reading of a row's float32 zero points that are prefetched, as many as of scales."""


def _zero_points(bits: int) -> Any:
    """Zero points of up to 16 blocks of a row."""
    first_codes, half = FIRST_CODES[bits], np.float32(1 << (bits - 1))

    @inline
    def zero_points(address: int, first: int, count: int, kind: int) -> Any:
        # The operator's default.
        if kind == 0:
            return splat_f32(half)
        if kind == 2:
            prefetch_l2(address + first * 4 + _AHEAD_OF_ZERO_POINTS)
            return load_f32_masked(address + first * 4, count)
        return to_f32(first_codes(address + first * bits // 8, count))

    return zero_points


def _products(bits: int, rows: int) -> Any:
    """Results of two rows of the weight, some rows apart, with some rows of activations."""
    operations, zero_points, x_step = span_operations(bits, rows), _zero_points(bits), 64 * (8 // bits) + 64
    zero, take_offsets, add_span, write = operations.zero, operations.take_offsets, operations.add_span, operations.write

    @inline
    def products(args: MatMulNBits, column: int, apart: int, row: int, blocks: int, lanes: int) -> None:
        kind, z_stride, x_stride = args.zero_points_kind, args.zero_points_stride, args.x_stride
        b_stride, indices, x = args.block_stride, args.lane_blocks, args.x + row * x_stride
        codes, scales = args.codes + column * blocks * lanes * 4, args.scales + column * blocks * 4
        halves, zeros = args.float16_scales, args.zero_points + column * z_stride
        x_sums, total = args.x_sums + row * b_stride, zero()
        for first in range(0, blocks, 16):
            count = blocks - first
            # Half as many bytes of scales: a tenth less memory is read in all.
            if halves:
                scale = load_half_scale_pair(halves, column * blocks + first, apart * blocks, count)
            else:
                scale = load_scale_pair(scales + first * 4, apart * blocks * 4, count)
            taken = multiply(scale[0], zero_points(zeros, first, count, kind))
            others = multiply(scale[1], zero_points(zeros + apart * z_stride, first, count, kind))
            total = take_offsets(total, taken, others, x_sums + first * 4, b_stride, count)
            for span in range(min(lanes, (count * lanes + 15) // 16)):
                value = load_code_pair(codes, apart * blocks * lanes * 4, count * lanes - span * 16)
                total = add_span(total, value[0], value[1], scale[0], scale[1], x, x_stride, load_i32(indices + span * 64))
                codes += 64
                x += x_step
        n, bias, out = args.n, args.bias + column * 4, args.out + column * 4
        start = read_f32(bias) if args.bias else np.float32(0)
        other = read_f32(bias + apart * 4) if args.bias else np.float32(0)
        write(total, out + row * n * 4, n * 4, apart * 4, start, other)

    return products


def _task(bits: int) -> Task:
    many, two, one = (_products(bits, rows) for rows in (_MANY, _TWO, _ONE))

    @inline
    def pair_of_columns(args: MatMulNBits, column: int, apart: int, blocks: int, lanes: int) -> None:
        row, rows = 0, args.m
        # Codes are unpacked once for four rows of activations.
        while rows - row >= _MANY:
            many(args, column, apart, row, blocks, lanes)
            row += _MANY
        if rows - row >= _TWO:
            two(args, column, apart, row, blocks, lanes)
            row += _TWO
        if rows - row:
            one(args, column, apart, row, blocks, lanes)

    def gemv_nk_i8(args: MatMulNBits, thread: int, threads: int) -> None:
        n, block = args.n, args.block_size
        blocks, lanes = (args.k + block - 1) // block, block * bits // 32
        first, last = n * thread // threads, n * (thread + 1) // threads
        # Two runs of rows, one from each half of the thread's: both go on for long.
        half = (last - first) // 2
        for column in range(first, first + half):
            pair_of_columns(args, column, half, blocks, lanes)
        for column in range(first + 2 * half, last):
            pair_of_columns(args, column, 0, blocks, lanes)

    gemv_nk_i8.__name__ += f"_{bits}"
    return task(gemv_nk_i8)


gemv_nk_i8_2, gemv_nk_i8_4, gemv_nk_i8_8 = (_task(bits) for bits in (2, 4, 8))
