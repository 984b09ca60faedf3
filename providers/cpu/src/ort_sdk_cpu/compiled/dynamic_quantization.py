"""Quantization of float32 by its own range, and integer sums of products back to float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    maximum,
    minimum,
    multiply,
    reduce_add_i32,
    reduce_max,
    round_to_even,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    to_i32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.bytes import broadcast_u8, store_i8_first
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    load_i32_first,
    load_u8_first,
    store_f32_first,
    store_i8,
    write_f32,
)
from ort_sdk_cpu.simd.records import argument

__all__ = ["quantize_by_range", "sums_to_float"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_STEPS = np.float32(255)
_COLUMNS = 512
"""Columns of a row that a thread finishes at a time."""


@inner
def _range_of(x: int, count: int) -> Any:
    """(lowest, highest), zero among them; at least 16 numbers."""
    low, high = zero_f32(), zero_f32()
    for vector in range((count + 15) // 16):
        value = load_f32(x + min(vector * 16, count - 16) * 4)
        low, high = minimum(low, value), maximum(high, value)
    return -reduce_max(subtract(zero_f32(), low)), reduce_max(high)


@task
def quantize_by_range(record: int, _part: int, _parts: int) -> None:
    """Quantize to uint8.

    Arguments: addresses of x, of the result, of its scale (float32) and its zero point (uint8); count, from 16 on.
    """
    x, out, count = argument(record, 0), argument(record, 1), argument(record, 4)
    low, high = _range_of(x, count)
    scale = _ONE if low == high else (high - low) / _STEPS
    steps, most = splat_f32(scale), splat_f32(_STEPS)
    zero_point = round_to_even(minimum(most, maximum(zero_f32(), divide(splat_f32(-low), steps))))
    write_f32(argument(record, 2), scale)
    store_i8_first(argument(record, 3), to_i32(zero_point), 1)
    for vector in range((count + 15) // 16):
        place = min(vector * 16, count - 16)
        value = add(round_to_even(divide(load_f32(x + place * 4), steps)), zero_point)
        store_i8(out + place, to_i32(minimum(most, maximum(zero_f32(), value))))


@inner
def _row_sum(row: int, depth: int) -> Any:
    total = zero_i32()
    for place in range(0, depth, 16):
        total = add(total, load_u8_first(row + place, depth - place))
    return reduce_add_i32(total)


@inner
def _finish_columns(record: int, row: int, first: int, stop: int, row_sum: int) -> None:
    columns, depth = argument(record, 9), argument(record, 10)
    zero_points, bias, a_zero_point = argument(record, 6), argument(record, 7), argument(record, 11)
    a_scale, zero = broadcast_f32(argument(record, 3)), broadcast_u8(a_zero_point) if a_zero_point else zero_i32()
    shift = subtract(splat_i32(row_sum), multiply(splat_i32(depth), zero))
    for column in range(first, stop, 16):
        left, place = stop - column, (row * columns + column) * 4
        sums = load_i32_first(argument(record, 0) + place, left)
        sums = subtract(sums, multiply(load_i32_first(argument(record, 4) + column * 4, left), zero))
        if zero_points:
            sums = subtract(sums, multiply(load_i32_first(zero_points + column * 4, left), shift))
        scale = multiply(load_f32_first(argument(record, 5) + column * 4, left), a_scale)
        value = multiply(to_f32(sums), scale)
        if bias:
            value = add(value, load_f32_first(bias + column * 4, left))
        store_f32_first(argument(record, 2) + place, value, left)


@task
def sums_to_float(record: int, part: int, parts: int) -> None:
    """Sums of products of quantized numbers as float32.

    Arguments: addresses of the sums (int32) of A and B without zero points; of A (uint8), of the result, of A's scale (float32),
    of the sums of B's columns (int32), of its scales, one per column, of its zero points (int32) or 0, of a bias or 0; rows,
    columns, and how many products are summed; address of A's zero point (uint8) or 0.
    """
    rows, columns, depth = argument(record, 8), argument(record, 9), argument(record, 10)
    pieces = (columns + _COLUMNS - 1) // _COLUMNS
    units = rows * pieces
    for unit in range(units * part // parts, units * (part + 1) // parts):
        row, first = unit // pieces, unit % pieces * _COLUMNS
        row_sum = _row_sum(argument(record, 1) + row * depth, depth) if argument(record, 6) else 0
        _finish_columns(record, row, first, min(first + _COLUMNS, columns), row_sum)
