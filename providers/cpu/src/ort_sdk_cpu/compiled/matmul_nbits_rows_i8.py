"""MatMulNBits for one row of activations, or two: dot products with the rows of a weight [N, k_blocks, bytes], as integers.

A weight's row is read where it lies, 64 bytes at a time, a *span*: 16 lanes of 4 bytes, which belong to one block or several.
Sixteen blocks, a *group*, are ``lanes`` spans, where ``lanes`` is the number of 4-byte lanes of a block.

Arguments: see ``simd.nbits_arguments``; ``X`` is of ``arrange_i8``. Without zero points, half the codes' range is meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import (
    bit_and,
    fused_multiply_add,
    multiply,
    reduce_add,
    shift_right,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.codes import FIRST_CODES
from ort_sdk_cpu.simd.memory import load_f32_first, load_i32, load_i32_first, prefetch, read_f32, write_f32
from ort_sdk_cpu.simd.nbits_arguments import (
    BIAS,
    BLOCK,
    BLOCK_STRIDE,
    CODES,
    INDICES,
    OUT,
    SCALES,
    X_SCALES,
    X_STRIDE,
    X_SUMS,
    ZEROS,
    ZEROS_KIND,
    ZEROS_STRIDE,
    K,
    M,
    N,
    X,
)
from ort_sdk_cpu.simd.products import add_products_u8_i8
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.shuffles import lookup

__all__ = ["rows_i8_2", "rows_i8_4", "rows_i8_8"]

_AHEAD = 2048
"""Bytes ahead of the reading that are asked for."""


@inner
def _add_integer_products(total: Any, codes: Any, shift: int, mask: Any, x: int) -> Any:
    """Products of the codes that start at bit ``shift`` of each byte with quantised activations."""
    return add_products_u8_i8(total, bit_and(shift_right(codes, shift), mask), load_i32(x))


def _dot(bits: int) -> Any:
    """Products of a span with quantised activations, summed over the elements of each lane."""
    byte = (1 << bits) - 1

    @inner
    def dot(codes: Any, x: int) -> Any:
        mask, total = splat_i32(np.int32(byte * 0x01010101)), zero_i32()
        for shift in range(0, 8, bits):
            total = _add_integer_products(total, codes, shift, mask, x + shift * (64 // bits))
        return to_f32(total)

    @inner
    def dot_of_bytes(codes: Any, x: int) -> Any:
        return to_f32(add_products_u8_i8(zero_i32(), codes, load_i32(x)))

    return dot_of_bytes if bits == 8 else dot


def _pair(bits: int) -> Any:
    """Dot products of a row with two rows of activations, which may be the same."""
    first_codes, dot = FIRST_CODES[bits], _dot(bits)
    x_step, half = 64 * (8 // bits), np.float32(1 << (bits - 1))

    @inner
    def zero_points(address: int, first: int, count: int, kind: int) -> Any:
        if kind == 0:
            return splat_f32(half)
        if kind == 2:
            return load_f32_first(address + first * 4, count)
        return to_f32(first_codes(address + first * bits // 8, count))

    @inner
    def add_span(codes: Any, x: int, factors: Any, index: Any, total: Any) -> Any:
        return fused_multiply_add(dot(codes, x), lookup(factors, index), total)

    @inner
    def pair(record: int, codes: int, scales: int, zeros: int, blocks: int, lanes: int, x: int, b: int, y: int, c: int) -> Any:
        totals, offsets = (zero_f32(), zero_f32()), (zero_f32(), zero_f32())
        kind, indices = argument(record, ZEROS_KIND), argument(record, INDICES)
        x_scales, x_sums = argument(record, X_SCALES), argument(record, X_SUMS)
        for first in range(0, blocks, 16):
            count, place = blocks - first, first * 4
            prefetch(scales + place + _AHEAD)
            scale = load_f32_first(scales + place, count)
            shares = multiply(scale, zero_points(zeros, first, count, kind))
            offsets = (
                fused_multiply_add(shares, load_f32_first(x_sums + b + place, count), offsets[0]),
                fused_multiply_add(shares, load_f32_first(x_sums + c + place, count), offsets[1]),
            )
            factors = multiply(scale, load_f32_first(x_scales + b + place, count))
            others = multiply(scale, load_f32_first(x_scales + c + place, count))
            for span in range(min(lanes, (count * lanes + 15) // 16)):
                prefetch(codes + _AHEAD)
                left, index = count * lanes - span * 16, load_i32(indices + span * 64)
                value = load_i32(codes) if left >= 16 else load_i32_first(codes, left)
                totals = (add_span(value, x, factors, index, totals[0]), add_span(value, y, others, index, totals[1]))
                codes += 64
                x += x_step
                y += x_step
        return reduce_add(subtract(totals[0], offsets[0])), reduce_add(subtract(totals[1], offsets[1]))

    return pair


@inner
def _rows_of_column(record: int, column: int, blocks: int, lanes: int, pair: Any) -> None:
    """Results of all rows of activations with a row of the weight."""
    m, n, bias = argument(record, M), argument(record, N), argument(record, BIAS)
    start = read_f32(bias + column * 4) if bias else np.float32(0)
    codes, scales = argument(record, CODES) + column * blocks * lanes * 4, argument(record, SCALES) + column * blocks * 4
    zeros, out = argument(record, ZEROS) + column * argument(record, ZEROS_STRIDE), argument(record, OUT) + column * 4
    x_stride, b_stride = argument(record, X_STRIDE), argument(record, BLOCK_STRIDE)
    for row in range(0, m - 1, 2):
        x, b = argument(record, X) + row * x_stride, row * b_stride
        first, second = pair(record, codes, scales, zeros, blocks, lanes, x, b, x + x_stride, b + b_stride)
        write_f32(out + row * n * 4, first + start)
        write_f32(out + (row + 1) * n * 4, second + start)
    if m % 2:
        x, b = argument(record, X) + (m - 1) * x_stride, (m - 1) * b_stride
        first, _ = pair(record, codes, scales, zeros, blocks, lanes, x, b, x, b)
        write_f32(out + (m - 1) * n * 4, first + start)


@inner
def _part(record: int, part: int, parts: int, bits: int, pair: Any) -> None:
    n, block = argument(record, N), argument(record, BLOCK)
    blocks, lanes = (argument(record, K) + block - 1) // block, block * bits // 32
    for column in range(n * part // parts, n * (part + 1) // parts):
        _rows_of_column(record, column, blocks, lanes, pair)


def _task(bits: int) -> Task:
    pair = _pair(bits)

    def rows(record: int, part: int, parts: int) -> None:
        _part(record, part, parts, bits, pair)

    rows.__name__ = f"rows_i8_{bits}"
    return task(rows)


rows_i8_2, rows_i8_4, rows_i8_8 = (_task(bits) for bits in (2, 4, 8))
