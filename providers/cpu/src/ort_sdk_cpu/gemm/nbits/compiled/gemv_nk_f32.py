"""GEMV of MatMulNBits over an NK weight for few rows of activations: dot products as float32.

A weight's row is read in place, 64 bytes at a time, a *span*: 16 lanes of 4 bytes, which belong to one block or several.
Sixteen blocks, a *group*, are ``lanes`` spans, where ``lanes`` is the number of 4-byte lanes of a block. Four rows are read side
by side, so that activations are loaded once for all four.

Without zero points, they are half the codes' range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import MatMulNBits
from ort_sdk_cpu.gemm.nbits.microkernels.unpack import FIRST_CODES
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.arithmetic import (
    bit_xor,
    fused_multiply_add,
    multiply,
    reduce_add,
    shift_left,
    shift_right,
    shift_right_signed,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    zero_f32,
)
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, load_i32, load_i32_masked, prefetch_l2, read_f32, write_f32
from ort_sdk_cpu.simd.shuffles import lookup

from .dequantized_dot import dequantized_dot, has_finite_sum

__all__ = ["gemv_nk_f32_2", "gemv_nk_f32_4", "gemv_nk_f32_8"]


@inline
def _load_rows(address: int, stride: int, count: int) -> Any:
    # Whole spans need no masks; the rows behind these four come next, four streams of their own.
    if count >= 16:
        prefetch_l2(address + 4 * stride)
        prefetch_l2(address + 5 * stride)
        prefetch_l2(address + 6 * stride)
        prefetch_l2(address + 7 * stride)
        return load_i32(address), load_i32(address + stride), load_i32(address + 2 * stride), load_i32(address + 3 * stride)
    return (
        load_i32_masked(address, count),
        load_i32_masked(address + stride, count),
        load_i32_masked(address + 2 * stride, count),
        load_i32_masked(address + 3 * stride, count),
    )


@inline
def _zeros_f32() -> Any:
    return zero_f32(), zero_f32(), zero_f32(), zero_f32()


@inline
def _add_code_products(totals: Any, codes: Any, shift: int, x: int, table: Any) -> Any:
    """Products of the codes that start at bit ``shift`` of each lane with activations as they are."""
    v = load_f32(x)
    return (
        fused_multiply_add(lookup(table, shift_right(codes[0], shift)), v, totals[0]),
        fused_multiply_add(lookup(table, shift_right(codes[1], shift)), v, totals[1]),
        fused_multiply_add(lookup(table, shift_right(codes[2], shift)), v, totals[2]),
        fused_multiply_add(lookup(table, shift_right(codes[3], shift)), v, totals[3]),
    )


@inline
def _signed_byte(codes: Any, shift: int) -> Any:
    """The byte that ends ``shift`` bits below the top, less 128."""
    # Flipping the sign bit makes the unsigned byte less 128, which a signed shift extends.
    raised = bit_xor(codes, splat_i32(np.int32(-0x7F7F7F80)))
    return to_f32(shift_right_signed(shift_left(raised, shift), 24))


@inline
def _add_byte_products(totals: Any, codes: Any, shift: int, x: int) -> Any:
    v = load_f32(x)
    return (
        fused_multiply_add(_signed_byte(codes[0], shift), v, totals[0]),
        fused_multiply_add(_signed_byte(codes[1], shift), v, totals[1]),
        fused_multiply_add(_signed_byte(codes[2], shift), v, totals[2]),
        fused_multiply_add(_signed_byte(codes[3], shift), v, totals[3]),
    )


@inline
def _dot_of_bytes(codes: Any, x: int, _table: Any) -> Any:
    totals = _add_byte_products(_zeros_f32(), codes, 24, x)
    totals = _add_byte_products(totals, codes, 16, x + 64)
    totals = _add_byte_products(totals, codes, 8, x + 128)
    return _add_byte_products(totals, codes, 0, x + 192)


def _dot(bits: int) -> Any:
    """Products of a span of four rows with activations; codes count from half their range."""

    @inline
    def dot(codes: Any, x: int, table: Any) -> Any:
        totals = _zeros_f32()
        # Each shift brings another code of every lane to the place where the look-up reads it.
        for shift in range(0, 32, bits):
            totals = _add_code_products(totals, codes, shift, x + shift * (64 // bits), table)
        return totals

    return _dot_of_bytes if bits == 8 else dot


@inline
def _add_span(totals: Any, dots: Any, factors: Any, index: Any) -> Any:
    """Add a span's products, each lane times its block's factor."""
    return (
        fused_multiply_add(dots[0], lookup(factors[0], index), totals[0]),
        fused_multiply_add(dots[1], lookup(factors[1], index), totals[1]),
        fused_multiply_add(dots[2], lookup(factors[2], index), totals[2]),
        fused_multiply_add(dots[3], lookup(factors[3], index), totals[3]),
    )


@inline
def _load_scales(address: int, stride: int, count: int) -> Any:
    # The next four rows' scales.
    prefetch_l2(address + 4 * stride)
    prefetch_l2(address + 5 * stride)
    prefetch_l2(address + 6 * stride)
    prefetch_l2(address + 7 * stride)
    return (
        load_f32_masked(address, count),
        load_f32_masked(address + stride, count),
        load_f32_masked(address + 2 * stride, count),
        load_f32_masked(address + 3 * stride, count),
    )


@inline
def _sums(totals: Any, offsets: Any) -> Any:
    return (
        reduce_add(subtract(totals[0], offsets[0])),
        reduce_add(subtract(totals[1], offsets[1])),
        reduce_add(subtract(totals[2], offsets[2])),
        reduce_add(subtract(totals[3], offsets[3])),
    )


def _offsets(bits: int) -> Any:
    """Sums of zero point * scale * sum of the activations, added to, for up to 16 blocks; zero points count from half."""
    first_codes, half = FIRST_CODES[bits], np.float32(1 << (bits - 1))

    @inline
    def points(address: int, first: int, count: int, kind: int, ahead: int, scale: Any, sums: Any, total: Any) -> Any:
        # Float zero points take as much memory as scales, and are prefetched like them.
        if kind == 2:
            prefetch_l2(address + first * 4 + ahead)
            value = load_f32_masked(address + first * 4, count)
        else:
            value = to_f32(first_codes(address + first * bits // 8, count))
        return fused_multiply_add(multiply(subtract(value, splat_f32(half)), scale), sums, total)

    @inline
    def offsets(zeros: int, stride: int, first: int, count: int, kind: int, scales: Any, sums: Any, totals: Any) -> Any:
        return (
            points(zeros, first, count, kind, 4 * stride, scales[0], sums, totals[0]),
            points(zeros + stride, first, count, kind, 4 * stride, scales[1], sums, totals[1]),
            points(zeros + 2 * stride, first, count, kind, 4 * stride, scales[2], sums, totals[2]),
            points(zeros + 3 * stride, first, count, kind, 4 * stride, scales[3], sums, totals[3]),
        )

    return offsets


def _four_rows(bits: int) -> Any:
    """Dot products of four rows with one row of activations; ``step`` is 0 for the same row four times."""
    dot, add_offsets, x_step = _dot(bits), _offsets(bits), 256 * (8 // bits)

    @inline
    def four_rows(args: MatMulNBits, column: int, step: int, blocks: int, lanes: int, x: int, x_sums: int, table: Any) -> Any:
        totals, offsets = _zeros_f32(), _zeros_f32()
        kind, z_stride, indices = args.zero_points_kind, args.zero_points_stride, args.lane_blocks
        codes, scales = args.codes + column * blocks * lanes * 4, args.scales + column * blocks * 4
        zeros = args.zero_points + column * z_stride
        for first in range(0, blocks, 16):
            count = blocks - first
            scale = _load_scales(scales + first * 4, step * blocks * 4, count)
            # Without zero points, half the codes' range is in the table.
            if kind:
                sums = load_f32_masked(x_sums + first * 4, count)
                offsets = add_offsets(zeros, step * z_stride, first, count, kind, scale, sums, offsets)
            for span in range(min(lanes, (count * lanes + 15) // 16)):
                rows = _load_rows(codes, step * blocks * lanes * 4, count * lanes - span * 16)
                totals = _add_span(totals, dot(rows, x, table), scale, load_i32(indices + span * 64))
                codes += 64
                x += x_step
        return _sums(totals, offsets)

    return four_rows


@inline
def _write_four(out: int, bias: int, column: int, n: int, values: Any) -> None:
    for index in range(min(4, n - column)):
        start = read_f32(bias + (column + index) * 4) if bias else np.float32(0)
        write_f32(out + (column + index) * 4, values[index] + start)


def _task(bits: int) -> Task:
    row_products, dot = _four_rows(bits), dequantized_dot(bits)

    @inline
    def dequantized_four(args: MatMulNBits, column: int, step: int, row: int, blocks: int) -> Any:
        return (
            dot(args, column, row, blocks),
            dot(args, column + step, row, blocks),
            dot(args, column + 2 * step, row, blocks),
            dot(args, column + 3 * step, row, blocks),
        )

    def gemv_nk(args: MatMulNBits, thread: int, threads: int) -> None:
        m, n, block = args.m, args.n, args.block_size
        blocks, lanes = (args.k + block - 1) // block, block * bits // 32
        fours, step, table = (n + 3) // 4, 1 if n >= 4 else 0, load_f32(args.table)
        for four in range(fours * thread // threads, fours * (thread + 1) // threads):
            # The last four rows overlap those before: no masks, the same results twice.
            column = max(min(four * 4, n - 4), 0)
            for row in range(m):
                x, sums = (
                    args.x + row * args.x_stride,
                    args.x_sums + row * args.block_stride,
                )
                # Half the range times an infinity would give NaN.
                if has_finite_sum(args, row, blocks):
                    values = row_products(args, column, step, blocks, lanes, x, sums, table)
                else:
                    values = dequantized_four(args, column, step, row, blocks)
                _write_four(args.out + row * n * 4, args.bias, column, n, values)

    gemv_nk.__name__ = f"gemv_nk_f32_{bits}"
    return task(gemv_nk)


gemv_nk_f32_2, gemv_nk_f32_4, gemv_nk_f32_8 = (_task(bits) for bits in (2, 4, 8))
