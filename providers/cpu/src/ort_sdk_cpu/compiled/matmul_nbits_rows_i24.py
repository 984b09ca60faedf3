"""MatMulNBits for few rows of activations: dot products with the rows of a weight [N, k_blocks, bytes], as exact as float32.

Activations are integers of 24 bits: products of integers take fewer instructions than making float32 of each code. Spans and
groups are those of ``matmul_nbits_rows_i8``. Two rows are read side by side, so that activations are loaded once for both. They
lie far apart: each is the next of a long run of rows, which processors foresee.

Arguments: see ``simd.nbits_arguments``; ``X``, ``X_SCALES`` and ``X_SUMS`` are of ``digits_of_rows``, with ``X_STRIDE`` bytes
from line to line. Without zero points, half the codes' range is meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
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
from ort_sdk_cpu.simd.codes import FIRST_CODES
from ort_sdk_cpu.simd.memory import load_f32_first, load_i32, read_f32, write_f32
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
from ort_sdk_cpu.simd.row_pairs import load_code_pair, load_scale_pair
from ort_sdk_cpu.simd.shuffles import lookup

__all__ = ["rows_i24_2", "rows_i24_4", "rows_i24_8"]

_LINES = 5
"""Lines of a row of activations."""
_FIRST_DIGIT = np.float32(65536)


@inner
def _add_digits(totals: Any, codes: Any, x: int, stride: int) -> Any:
    """Products of codes of two rows with the three digits of activations."""
    first, second, third = load_i32(x), load_i32(x + stride), load_i32(x + 2 * stride)
    return (
        add_products_u8_i8(totals[0], codes[0], first),
        add_products_u8_i8(totals[1], codes[0], second),
        add_products_u8_i8(totals[2], codes[0], third),
        add_products_u8_i8(totals[3], codes[1], first),
        add_products_u8_i8(totals[4], codes[1], second),
        add_products_u8_i8(totals[5], codes[1], third),
    )


def _joined(bits: int) -> Any:
    """The number that sums by digits make. Those of codes of less than 8 bits fit in 32."""

    @inner
    def joined(first: Any, second: Any, third: Any) -> Any:
        return to_f32(add(shift_left(add(shift_left(first, 8), second), 8), third))

    @inner
    def joined_as_floats(first: Any, second: Any, third: Any) -> Any:
        return fused_multiply_add(to_f32(first), splat_f32(_FIRST_DIGIT), to_f32(add(shift_left(second, 8), third)))

    return joined_as_floats if bits == 8 else joined


def _dots(bits: int) -> Any:
    """Products of a span of two rows with activations, summed over the elements of each lane; codes count from half."""
    joined, byte = _joined(bits), (1 << bits) - 1

    @inner
    def dots(first: Any, second: Any, x: int, stride: int, starts: int) -> Any:
        start, low_start, mask = load_i32(starts), load_i32(starts + 64), splat_i32(np.int32(byte * 0x01010101))
        totals = (start, zero_i32(), low_start, start, zero_i32(), low_start)
        for shift in range(0, 8, bits):
            codes = bit_and(shift_right(first, shift), mask), bit_and(shift_right(second, shift), mask)
            totals = _add_digits(totals, codes, x + shift * (64 // bits), stride)
        return joined(totals[0], totals[1], totals[2]), joined(totals[3], totals[4], totals[5])

    @inner
    def dots_of_bytes(first: Any, second: Any, x: int, stride: int, starts: int) -> Any:
        start, low_start = load_i32(starts), load_i32(starts + 64)
        totals = _add_digits((start, zero_i32(), low_start, start, zero_i32(), low_start), (first, second), x, stride)
        return joined(totals[0], totals[1], totals[2]), joined(totals[3], totals[4], totals[5])

    return dots_of_bytes if bits == 8 else dots


@inner
def _load_scales(address: int, apart: int, x_scales: int, count: int) -> Any:
    """Scales of up to 16 blocks of two rows, times those of the activations."""
    first, second = load_scale_pair(address, apart, count)
    x_scale = load_f32_first(x_scales, count)
    return multiply(first, x_scale), multiply(second, x_scale)


def _zero_points(bits: int) -> Any:
    """Zero points of up to 16 blocks, from half."""
    first_codes, half = FIRST_CODES[bits], np.float32(1 << (bits - 1))

    @inner
    def zero_points(address: int, first: int, count: int, kind: int) -> Any:
        value = (
            load_f32_first(address + first * 4, count) if kind == 2 else to_f32(first_codes(address + first * bits // 8, count))
        )
        return subtract(value, splat_f32(half))

    return zero_points


def _pair(bits: int) -> Any:
    """Dot products of two rows, some rows apart, with one row of activations."""
    dots, zero_points, x_step = _dots(bits), _zero_points(bits), 64 * (8 // bits)

    @inner
    def pair(record: int, column: int, apart: int, blocks: int, lanes: int, x: int, b: int) -> Any:
        total, other, offset, other_offset = zero_f32(), zero_f32(), zero_f32(), zero_f32()
        kind, z_stride, stride = argument(record, ZEROS_KIND), argument(record, ZEROS_STRIDE), argument(record, X_STRIDE)
        codes, scales = argument(record, CODES) + column * blocks * lanes * 4, argument(record, SCALES) + column * blocks * 4
        zeros, starts, indices = argument(record, ZEROS) + column * z_stride, x + 3 * stride, argument(record, INDICES)
        for first in range(0, blocks, 16):
            count, place = blocks - first, b + first * 4
            scale, other_scale = _load_scales(scales + first * 4, apart * blocks * 4, argument(record, X_SCALES) + place, count)
            if kind:
                sums = load_f32_first(argument(record, X_SUMS) + place, count)
                own, others = (
                    load_f32_first(scales + first * 4, count),
                    load_f32_first(scales + (first + apart * blocks) * 4, count),
                )
                offset = fused_multiply_add(multiply(zero_points(zeros, first, count, kind), own), sums, offset)
                points = zero_points(zeros + apart * z_stride, first, count, kind)
                other_offset = fused_multiply_add(multiply(points, others), sums, other_offset)
            for span in range(min(lanes, (count * lanes + 15) // 16)):
                index, rows = (
                    load_i32(indices + span * 64),
                    load_code_pair(codes, apart * blocks * lanes * 4, count * lanes - span * 16),
                )
                products = dots(rows[0], rows[1], x, stride, starts)
                total = fused_multiply_add(products[0], lookup(scale, index), total)
                other = fused_multiply_add(products[1], lookup(other_scale, index), other)
                codes += 64
                x += x_step
                starts += 128
        return reduce_add(subtract(total, offset)), reduce_add(subtract(other, other_offset))

    return pair


@inner
def _pair_of_columns(record: int, column: int, apart: int, blocks: int, lanes: int, pair: Any) -> None:
    """Results of all rows of activations with two rows of the weight, which may be the same."""
    n, bias, out = argument(record, N), argument(record, BIAS), argument(record, OUT)
    for row in range(argument(record, M)):
        x, b = argument(record, X) + row * _LINES * argument(record, X_STRIDE), row * argument(record, BLOCK_STRIDE)
        values, place = pair(record, column, apart, blocks, lanes, x, b), out + (row * n + column) * 4
        write_f32(place, values[0] + (read_f32(bias + column * 4) if bias else np.float32(0)))
        write_f32(place + apart * 4, values[1] + (read_f32(bias + (column + apart) * 4) if bias else np.float32(0)))


def _task(bits: int) -> Task:
    pair = _pair(bits)

    def rows(record: int, part: int, parts: int) -> None:
        n, block = argument(record, N), argument(record, BLOCK)
        blocks, lanes = (argument(record, K) + block - 1) // block, block * bits // 32
        first, last = n * part // parts, n * (part + 1) // parts
        half = (last - first) // 2
        for column in range(first, first + half):
            _pair_of_columns(record, column, half, blocks, lanes, pair)
        for column in range(first + 2 * half, last):
            _pair_of_columns(record, column, 0, blocks, lanes, pair)

    rows.__name__ = f"rows_i24_{bits}"
    return task(rows)


rows_i24_2, rows_i24_4, rows_i24_8 = (_task(bits) for bits in (2, 4, 8))
