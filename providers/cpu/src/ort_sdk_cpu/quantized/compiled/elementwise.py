"""8-bit tensors element by element: looked up in tables, added and multiplied, averaged, softmax.

Elements are read as bytes. ``flip`` is 128 for signed ones, which makes them unsigned and 128 larger; zero points are given
128 larger, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_xor,
    divide,
    maximum,
    minimum,
    multiply,
    reduce_add,
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
from ort_sdk_cpu.simd.bytes import broadcast_u8, load_bytes_first, lookup_bytes, store_bytes_first, store_i8_first
from ort_sdk_cpu.simd.math import exp_of_negative
from ort_sdk_cpu.simd.memory import load_u8, load_u8_first, read_f32
from ort_sdk_cpu.simd.remainder import first_lanes

__all__ = ["combine", "look_up", "mean_of_pixels", "mean_of_windows", "softmax_of_columns", "softmax_of_rows"]

_PIECE = 4096
"""Elements of a row, or of several short ones, that a thread computes at a time."""


@inner
def _look_up_row(x: int, out: int, table: int, first: int, stop: int) -> None:
    for place in range(first, stop, 64):
        value, left = load_bytes_first(x + place, stop - place), stop - place
        store_bytes_first(out + place, lookup_bytes(table, value) if table else value, left)


@inner
def _offset(record: int, line: int, sizes: int, strides: int) -> int:
    """Bytes to an operand's first row of a line: the last three of four outer sizes and all four strides are at these places."""
    second, first = argument(record, sizes + 1), argument(record, sizes)
    offset: int = line % second * argument(record, strides + 2)
    line //= second
    offset += line % first * argument(record, strides + 1) + line // first * argument(record, strides)
    return offset


@inner
def _units(record: int, place: int) -> tuple[int, int, int]:
    """How the work is cut: (units, those of a line, pieces of a row). Rows, elements of one and sizes are at a place."""
    rows, count, along = argument(record, place), argument(record, place + 1), argument(record, place + 4)
    pieces, at_once = (count + _PIECE - 1) // _PIECE, max(1, _PIECE // count)
    in_line = (along + at_once - 1) // at_once * pieces
    return rows // along * in_line, in_line, pieces


@inner
def _rows_of(record: int, place: int, unit: int, pieces: int) -> tuple[int, int]:
    """The first row of a unit in its line, and the one behind the last."""
    count, along = argument(record, place + 1), argument(record, place + 4)
    at_once = max(1, _PIECE // count)
    first = unit // pieces * at_once
    return first, min(along, first + at_once)


@task
def look_up(record: int, part: int, parts: int) -> None:
    """Rows of bytes by a table.

    Arguments: addresses of x, out and the table of 256 bytes (0: elements are copied); rows, elements of one; sizes of the last
    three of four dimensions of rows; bytes from element to element of x along the four and within a row, where it is 1, and of
    out.
    """
    count, table, x_step, out_step = argument(record, 4), argument(record, 2), argument(record, 11), argument(record, 16)
    units, in_line, pieces = _units(record, 3)
    for unit in range(units * part // parts, units * (part + 1) // parts):
        line, first = unit // in_line, unit % pieces * _PIECE
        x, out = argument(record, 0) + _offset(record, line, 5, 8), argument(record, 1) + _offset(record, line, 5, 13)
        begin, end = _rows_of(record, 3, unit % in_line, pieces)
        for row in range(begin, end):
            _look_up_row(x + row * x_step, out + row * out_step, table, first, min(count, first + _PIECE))


@inner
def _steps(record: int, place: int, value: Any) -> Any:
    """(zero point, scale, lowest, highest) of a result are at a place of the record."""
    zero, scale = splat_f32(number(record, place)), splat_f32(number(record, place + 1))
    low, high = splat_f32(number(record, place + 2)), splat_f32(number(record, place + 3))
    return to_i32(minimum(maximum(add(round_to_even(divide(value, scale)), zero), low), high))


@inner
def _real(record: int, place: int, value: Any) -> Any:
    """(flip, zero point, scale) are at a place of the record."""
    flipped = bit_xor(value, splat_i32(argument(record, place)))
    return multiply(subtract(to_f32(flipped), splat_f32(number(record, place + 1))), splat_f32(number(record, place + 2)))


@inner
def _bytes(place: int, left: int) -> Any:
    return load_u8(place) if left >= 16 else load_u8_first(place, left)


@inner
def _combine_row(record: int, a: int, b: int, out: int, a_step: int, b_step: int, first: int, stop: int) -> None:
    is_product = argument(record, 3)
    for place in range(first, stop, 16):
        left = stop - place
        x = _real(record, 4, _bytes(a + place, left) if a_step else broadcast_u8(a))
        y = _real(record, 7, _bytes(b + place, left) if b_step else broadcast_u8(b))
        store_i8_first(out + place, _steps(record, 10, multiply(x, y) if is_product else add(x, y)), left)


@task
def combine(record: int, part: int, parts: int) -> None:
    """Sum or product of tensors that broadcast.

    Arguments: addresses of a, b and out; whether it is a product; flip, zero point and scale of a and of b; zero point and scale
    of out, its lowest and highest number; rows, elements of one; sizes of the last three of four dimensions of rows; bytes
    from element to element of a, b and out along the four, and whether they go on within a row.
    """
    count, a_step, b_step, out_step = argument(record, 15), argument(record, 22), argument(record, 27), argument(record, 32)
    units, in_line, pieces = _units(record, 14)
    for unit in range(units * part // parts, units * (part + 1) // parts):
        line, first = unit // in_line, unit % pieces * _PIECE
        a, b = argument(record, 0) + _offset(record, line, 16, 19), argument(record, 1) + _offset(record, line, 16, 24)
        out, stop = argument(record, 2) + _offset(record, line, 16, 29), min(count, first + _PIECE)
        begin, end = _rows_of(record, 14, unit % in_line, pieces)
        for row in range(begin, end):
            rows = (a + row * a_step, b + row * b_step, out + row * out_step)
            _combine_row(record, *rows, argument(record, 23), argument(record, 28), first, stop)


@inner
def _sum_of_row(row: int, count: int, flip: int) -> int:
    """Of flipped bytes."""
    total, flips = zero_i32(), splat_i32(flip)
    for place in range(0, count, 16):
        total = add(total, bit_xor(load_u8_first(row + place, count - place), flips))
    # What is loaded behind the last element are zeros.
    found: int = reduce_add_i32(total)
    return found - flip * ((count + 15) // 16 * 16 - count)


@inner
def _mean(record: int, sums: Any) -> Any:
    """Sums of flipped bytes as steps of the mean."""
    pixels = argument(record, 4)
    centred = subtract(to_f32(sums), splat_f32(np.float32(pixels) * number(record, 8)))
    value = divide(multiply(centred, splat_f32(number(record, 9))), splat_f32(np.float32(pixels)))
    return _steps(record, 10, value)


@task
def mean_of_pixels(record: int, part: int, parts: int) -> None:
    """Mean of each channel.

    Arguments: addresses of x and out; samples, channels, pixels; bytes from pixel to pixel and from channel to channel, one of
    which is 1; flip, zero point and scale of x; zero point and scale of out, its lowest and highest number.
    """
    channels, pixels, pixel = argument(record, 3), argument(record, 4), argument(record, 5)
    groups, flip = (channels + 15) // 16, splat_i32(argument(record, 7))
    units = argument(record, 2) * groups
    for unit in range(units * part // parts, units * (part + 1) // parts):
        sample, first = unit // groups, unit % groups * 16
        left = channels - first
        x = argument(record, 0) + sample * channels * pixels + first * argument(record, 6)
        out = argument(record, 1) + sample * channels + first
        if argument(record, 6) == 1:
            total = zero_i32()
            for place in range(pixels):
                total = add(total, bit_xor(load_u8_first(x + place * pixel, left), flip))
            store_i8_first(out, _mean(record, total), left)
        else:
            for channel in range(min(left, 16)):
                row_sum = _sum_of_row(x + channel * pixels, pixels, argument(record, 7))
                store_i8_first(out + channel, _mean(record, splat_i32(row_sum)), 1)


@inner
def _taps(origin: int, size: int, count: int, dilation: int) -> tuple[int, int]:
    """First and last but one tap within the input."""
    first = 0 if origin >= 0 else (-origin + dilation - 1) // dilation
    return first, 0 if origin >= size else min(count, (size - origin + dilation - 1) // dilation)


@inner
def _row_of_means(record: int, source: int, target: int, line: int) -> None:
    height, width, channels = argument(record, 5), argument(record, 6), argument(record, 7)
    down, right = argument(record, 14), argument(record, 15)
    top = line * argument(record, 12) - argument(record, 16)
    first_h, stop_h = _taps(top, height, argument(record, 10), down)
    for column in range(argument(record, 9)):
        begin = column * argument(record, 13) - argument(record, 17)
        first_w, stop_w = _taps(begin, width, argument(record, 11), right)
        count = splat_f32(read_f32(argument(record, 2) + line * 4) * read_f32(argument(record, 3) + column * 4))
        for channel in range(0, channels, 16):
            left, total = channels - channel, zero_f32()
            for h in range(first_h, stop_h):
                for w in range(first_w, stop_w):
                    place = ((top + h * down) * width + begin + w * right) * channels + channel
                    total = add(total, _real(record, 18, _bytes(source + place, left)))
            store_i8_first(target + column * channels + channel, _steps(record, 21, divide(total, count)), left)


@task
def mean_of_windows(record: int, part: int, parts: int) -> None:
    """Means of windows of channels-last pictures.

    Arguments: addresses of x and out, and of what counts of each row of windows and of each column (float32); samples, height,
    width and channels of x; height and width of out; of a window; strides, dilations, and paddings before; flip, zero point and
    scale of x; zero point and scale of out, its lowest and highest number.
    """
    rows, channels = argument(record, 8), argument(record, 7)
    lines = argument(record, 4) * rows
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        source = argument(record, 0) + line // rows * argument(record, 5) * argument(record, 6) * channels
        target = argument(record, 1) + line * argument(record, 9) * channels
        _row_of_means(record, source, target, line % rows)


@inner
def _numbers(record: int, place: int, left: int) -> Any:
    """Flipped bytes as float32; zeros behind the last."""
    flipped = bit_xor(load_u8_first(place, left), splat_i32(argument(record, 4)))
    return first_lanes(to_f32(flipped), left)


@inner
def _softmax_row(record: int, x: int, out: int, count: int) -> None:
    zero, scale = splat_f32(number(record, 5)), splat_f32(number(record, 6))
    largest = zero_f32()
    for place in range(0, count, 16):
        largest = maximum(largest, _numbers(record, x + place, count - place))
    top = multiply(subtract(splat_f32(reduce_max(largest)), zero), scale)
    total = zero_f32()
    for place in range(0, count, 16):
        value = multiply(subtract(_numbers(record, x + place, count - place), zero), scale)
        total = add(total, first_lanes(exp_of_negative(subtract(value, top)), count - place))
    divisor = splat_f32(reduce_add(total))
    for place in range(0, count, 16):
        value = multiply(subtract(_numbers(record, x + place, count - place), zero), scale)
        share = divide(exp_of_negative(subtract(value, top)), divisor)
        store_i8_first(out + place, _steps(record, 7, share), count - place)


@task
def softmax_of_rows(record: int, part: int, parts: int) -> None:
    """Softmax of rows.

    Arguments: addresses of x and out; rows, elements of one; flip, zero point and scale of x; zero point and scale of out, its
    lowest and highest number.
    """
    rows, count = argument(record, 2), argument(record, 3)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        _softmax_row(record, argument(record, 0) + row * count, argument(record, 1) + row * count, count)


@inner
def _softmax_of_columns(record: int, x: int, out: int, count: int, step: int, left: int) -> None:
    zero, scale = splat_f32(number(record, 5)), splat_f32(number(record, 6))
    largest = zero_f32()
    for index in range(count):
        largest = maximum(largest, _numbers(record, x + index * step, left))
    top, total = multiply(subtract(largest, zero), scale), zero_f32()
    for index in range(count):
        value = multiply(subtract(_numbers(record, x + index * step, left), zero), scale)
        total = add(total, exp_of_negative(subtract(value, top)))
    for index in range(count):
        value = multiply(subtract(_numbers(record, x + index * step, left), zero), scale)
        store_i8_first(out + index * step, _steps(record, 7, divide(exp_of_negative(subtract(value, top)), total)), left)


@task
def softmax_of_columns(record: int, part: int, parts: int) -> None:
    """Softmax of the columns of matrices, sixteen at a time.

    Arguments: addresses of x and out; matrices, rows of one; flip, zero point and scale of x; zero point and scale of out, its
    lowest and highest number; columns of a matrix.
    """
    rows, columns = argument(record, 3), argument(record, 11)
    pieces = (columns + 15) // 16
    units = argument(record, 2) * pieces
    for unit in range(units * part // parts, units * (part + 1) // parts):
        first = unit % pieces * 16
        place = unit // pieces * rows * columns + first
        _softmax_of_columns(record, argument(record, 0) + place, argument(record, 1) + place, rows, columns, columns - first)
