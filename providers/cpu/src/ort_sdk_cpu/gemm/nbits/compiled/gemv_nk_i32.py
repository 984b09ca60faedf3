"""GEMV of MatMulNBits over an NK weight for few rows of activations: dot products of integers, as exact as float32.

Activations are fixed-point numbers of 31 bits in four int8 limbs: int8 dot products (VNNI) take fewer instructions than making
float32 of each code. Spans and groups are those of ``gemv_nk_f32``. Two rows are read side by side, so that activations are
loaded once for both. They are far apart: each is the next of a long run of rows, which processors foresee.

Without zero points, they are half the codes' range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.gemv_nk_i32 import LIMBS, LINES
from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.row_pairs import load_code_pair, load_scale_pair
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_and,
    fused_multiply_add,
    multiply,
    reduce_add,
    shift_left,
    shift_right,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.int8 import dot_u8_i8
from ort_sdk_cpu.simd.memory import load_f32_masked, load_i32, prefetch_l2, read_f32, write_f32
from ort_sdk_cpu.simd.shuffles import lookup

from .dequantized_dot import dequantized_dot, has_finite_sum

__all__ = ["gemv_nk_i32_2", "gemv_nk_i32_4", "gemv_nk_i32_8"]

_AHEAD_OF_ZERO_POINTS = 2048
"""Bytes ahead of the reading of a row's float32 zero points that are prefetched, as many as of scales."""
_FIRST_LIMBS = np.float32(65536)


@inline
def _add_limbs(totals: Any, codes: Any, x: int, stride: int) -> Any:
    """Products of codes of two rows with the four limbs of activations."""
    first, second, third, fourth = load_i32(x), load_i32(x + stride), load_i32(x + 2 * stride), load_i32(x + 3 * stride)
    return (
        dot_u8_i8(totals[0], codes[0], first),
        dot_u8_i8(totals[1], codes[0], second),
        dot_u8_i8(totals[2], codes[0], third),
        dot_u8_i8(totals[3], codes[0], fourth),
        dot_u8_i8(totals[4], codes[1], first),
        dot_u8_i8(totals[5], codes[1], second),
        dot_u8_i8(totals[6], codes[1], third),
        dot_u8_i8(totals[7], codes[1], fourth),
    )


@inline
def _joined(first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """The number that sums by limbs make, rounded once: those of two limbs are whole numbers that float32 has."""
    # Both fit 24 bits and a sign, which float32 holds: only the last addition rounds.
    high, low = add(shift_left(first, 8), second), add(shift_left(third, 8), fourth)
    return fused_multiply_add(to_f32(high), splat_f32(_FIRST_LIMBS), to_f32(low))


@inline
def _joined_pair(totals: Any) -> Any:
    return _joined(totals[0], totals[1], totals[2], totals[3]), _joined(totals[4], totals[5], totals[6], totals[7])


@inline
def _starts(place: int) -> Any:
    high, low, none = load_i32(place), load_i32(place + 64), zero_i32()
    # Half the codes' range times the limbs' sums is taken off by starting there.
    return none, high, none, low, none, high, none, low


def _dots(bits: int) -> Any:
    """Products of a span of two rows with activations, summed over the elements of each lane; codes count from half."""
    byte = (1 << bits) - 1

    @inline
    def dots(first: Any, second: Any, x: int, stride: int, starts: int) -> Any:
        mask, totals = splat_i32(np.int32(byte * 0x01010101)), _starts(starts)
        # Codes of a byte one after the other; activations are in their order.
        for shift in range(0, 8, bits):
            codes = bit_and(shift_right(first, shift), mask), bit_and(shift_right(second, shift), mask)
            totals = _add_limbs(totals, codes, x + shift * (64 // bits), stride)
        return _joined_pair(totals)

    @inline
    def dots_of_bytes(first: Any, second: Any, x: int, stride: int, starts: int) -> Any:
        return _joined_pair(_add_limbs(_starts(starts), (first, second), x, stride))

    return dots_of_bytes if bits == 8 else dots


@inline
def _add_exactly(total: Any, value: Any) -> Any:
    """A sum and what it lacks, with a number added (Knuth's two-sum)."""
    # A row has many blocks: what the sum of theirs loses to rounding is kept.
    found = add(total[0], value)
    part = subtract(found, total[0])
    lost = add(subtract(total[0], subtract(found, part)), subtract(value, part))
    return found, add(total[1], lost)


@inline
def _sum(total: Any) -> Any:
    """Of the lanes; a sum that became infinite lacks nothing."""
    lost = reduce_add(total[1])
    return reduce_add(total[0]) + (lost if lost == lost else np.float32(0))  # noqa: PLR0124 - NaN is not equal to itself


def _minus_points(bits: int) -> Any:
    """Zero points of up to 16 blocks, down from half."""
    first_codes, half = FIRST_CODES[bits], np.float32(1 << (bits - 1))

    @inline
    def minus_points(address: int, first: int, count: int, kind: int) -> Any:
        if kind == 2:
            prefetch_l2(address + first * 4 + _AHEAD_OF_ZERO_POINTS)
            return subtract(splat_f32(half), load_f32_masked(address + first * 4, count))
        return subtract(splat_f32(half), to_f32(first_codes(address + first * bits // 8, count)))

    return minus_points


def _pair(bits: int) -> Any:
    """Dot products of two rows, some rows apart, with one row of activations."""
    dots, minus_points, x_step = _dots(bits), _minus_points(bits), 64 * (8 // bits)

    @inline
    def pair(args: MatMulNBits, column: int, apart: int, blocks: int, lanes: int, x: int, b: int) -> Any:
        total, other_total = (zero_f32(), zero_f32()), (zero_f32(), zero_f32())
        kind, z_stride, stride = args.zero_points_kind, args.zero_points_stride, args.x_stride
        codes, scales = args.codes + column * blocks * lanes * 4, args.scales + column * blocks * 4
        zeros, starts, indices = args.zero_points + column * z_stride, x + LIMBS * stride, args.lane_blocks
        for first in range(0, blocks, 16):
            count, place, sum_, other = blocks - first, b + first * 4, zero_f32(), zero_f32()
            own, others = load_scale_pair(scales + first * 4, apart * blocks * 4, count)
            if kind:
                sums = load_f32_masked(args.x_sums + place, count)
                sum_ = multiply(multiply(minus_points(zeros, first, count, kind), own), sums)
                other = multiply(multiply(minus_points(zeros + apart * z_stride, first, count, kind), others), sums)
            # Scales of both operands are multiplied once for each block, not for each lane.
            x_scale = load_f32_masked(args.x_scales + place, count)
            own, others = multiply(own, x_scale), multiply(others, x_scale)
            for span in range(min(lanes, (count * lanes + 15) // 16)):
                index, rows = (
                    load_i32(indices + span * 64),
                    load_code_pair(codes, apart * blocks * lanes * 4, count * lanes - span * 16),
                )
                products = dots(rows[0], rows[1], x, stride, starts)
                sum_ = fused_multiply_add(products[0], lookup(own, index), sum_)
                other = fused_multiply_add(products[1], lookup(others, index), other)
                codes += 64
                x += x_step
                starts += 128
            total, other_total = _add_exactly(total, sum_), _add_exactly(other_total, other)
        return _sum(total), _sum(other_total)

    return pair


def _task(bits: int) -> Task:
    pair, dot = _pair(bits), dequantized_dot(bits)

    @inline
    def pair_of_columns(args: MatMulNBits, column: int, apart: int, blocks: int, lanes: int) -> None:
        """Results of all rows of activations with two rows of the weight, which may be the same."""
        n, bias, out = args.n, args.bias, args.out
        for row in range(args.m):
            x, b = args.x + row * LINES * args.x_stride, row * args.block_stride
            if has_finite_sum(args, row, blocks):
                values = pair(args, column, apart, blocks, lanes, x, b)
            else:
                values = dot(args, column, row, blocks), dot(args, column + apart, row, blocks)
            place = out + (row * n + column) * 4
            write_f32(place, values[0] + (read_f32(bias + column * 4) if bias else np.float32(0)))
            write_f32(place + apart * 4, values[1] + (read_f32(bias + (column + apart) * 4) if bias else np.float32(0)))

    def gemv_nk(args: MatMulNBits, thread: int, threads: int) -> None:
        n, block = args.n, args.block_size
        blocks, lanes = (args.k + block - 1) // block, block * bits // 32
        first, last = n * thread // threads, n * (thread + 1) // threads
        # Two runs of rows, one from each half of the thread's: both go on for long.
        half = (last - first) // 2
        for column in range(first, first + half):
            pair_of_columns(args, column, half, blocks, lanes)
        for column in range(first + 2 * half, last):
            pair_of_columns(args, column, 0, blocks, lanes)

    gemv_nk.__name__ = f"gemv_nk_i32_{bits}"
    return task(gemv_nk)


gemv_nk_i32_2, gemv_nk_i32_4, gemv_nk_i32_8 = (_task(bits) for bits in (2, 4, 8))
