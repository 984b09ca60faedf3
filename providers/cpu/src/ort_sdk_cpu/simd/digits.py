"""Activations as integers of 24 bits in three digits of 8 bits: products of integers that are as exact as those of float32.

In each block, ``x = scale * (65536 a + 256 b + c)`` to half a unit of the last digit, where a, b and c are int8 and ``scale`` is
the largest magnitude over 8,355,700: about 2**-24 of it is lost, as in float32. Each digit has a *line* of memory of its own. A
block with an infinity or NaN has NaN for a scale.

Codes count from half their range, yet are multiplied as they are: sums of products *start* from minus half the range times the
digits' sum. Starts are kept in two int32, of the first digit, and of the other two together, as 256 b + c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner

from .activations import clear_rest, padded_size, separate_planes
from .arithmetic import (
    add,
    bit_and,
    maximum_i32,
    multiply,
    reduce_add,
    reduce_max_bits,
    round_to_even,
    shift_left,
    shift_right_signed,
    splat_f32,
    splat_i32,
    subtract,
    to_f32,
    to_i32,
    zero_f32,
    zero_i32,
)
from .memory import load_f32_first, load_i32, load_i32_first, store_i8, store_i32, write_f32
from .products import add_products_u8_i8

__all__ = ["arrange_digits"]

_DIGITS = 3

_LARGEST = np.float32(8355700)
"""A little less than 127 * 65536 + 127 * 256 + 127, as x / scale is rounded twice."""
_SMALLEST_SCALE = np.float32(1.1754944e-38)
_INFINITY = np.float32(np.inf)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_ONES = np.int32(0x01010101)


@inner
def _last_digit(value: Any) -> Any:
    return shift_right_signed(shift_left(value, 24), 24)


@inner
def _largest_magnitude(row: int, count: int) -> Any:
    """That of some float32, infinite or NaN if one of them is."""
    bits = zero_i32()
    for element in range(0, count, 16):
        bits = maximum_i32(bits, bit_and(load_i32_first(row + element * 4, count - element), splat_i32(_MAGNITUDE)))
    return reduce_max_bits(bits)


@inner
def _quantize_block(row: int, count: int, target: int, stride: int, scale_place: int, sum_place: int) -> None:
    """The digits, scale and sum of a block's elements; zeros up to whole vectors."""
    largest = _largest_magnitude(row, count)
    scale = max(largest / _LARGEST, _SMALLEST_SCALE)
    inverse, total = splat_f32(np.float32(1) / scale), zero_f32()
    for element in range(0, count, 16):
        value = to_i32(round_to_even(multiply(load_f32_first(row + element * 4, count - element), inverse)))
        total = add(total, to_f32(value))
        last = _last_digit(value)
        rest = shift_right_signed(subtract(value, last), 8)
        middle = _last_digit(rest)
        store_i8(target + element, shift_right_signed(subtract(rest, middle), 8))
        store_i8(target + stride + element, middle)
        store_i8(target + 2 * stride + element, last)
    factor = scale if largest < _INFINITY else np.float32(np.nan)
    write_f32(scale_place, factor)
    write_f32(sum_place, factor * reduce_add(total))


@inner
def _lane_sums(place: int, stride: int, planes: int) -> Any:
    """Of the digits of each lane of a span."""
    first, others, ones = zero_i32(), zero_i32(), splat_i32(_ONES)
    for plane in range(planes):
        line = place + plane * 64
        first = add_products_u8_i8(first, ones, load_i32(line))
        others = add(others, shift_left(add_products_u8_i8(zero_i32(), ones, load_i32(line + stride)), 8))
        others = add_products_u8_i8(others, ones, load_i32(line + 2 * stride))
    return first, others


@inner
def arrange_digits(row: int, size: int, block: int, planes: int, target: int, stride: int, scales: int, sums: int) -> None:
    """Quantise a row, and take the elements that share a byte of the weight apart.

    Args:
        row: address of ``size`` float32.
        size: elements.
        block: elements with one scale; a multiple of 16.
        planes: elements that share a byte of the weight.
        target: lines in the order of ``arrange_i8``, the digits' and, behind them, the starts: for each span of 64 * planes
            elements, 16 int32 of the first digit's lanes, 16 of the others'.
        stride: bytes from line to line.
        scales: float32 scale of each block.
        sums: float32 sum of each block's quantised elements times its scale.
    """
    for start in range(0, size, block):
        place = start // block * 4
        _quantize_block(row + start * 4, min(block, size - start), target + start, stride, scales + place, sums + place)
    for digit in range(_DIGITS):
        clear_rest(target + digit * stride, size, block, planes)
        separate_planes(target + digit * stride, size, block, planes)
    minus_half, starts, span = splat_i32(np.int32(-(1 << (8 // planes - 1)))), target + _DIGITS * stride, 64 * planes
    for number in range(padded_size(size, block, planes) // span):
        first, others = _lane_sums(target + number * span, stride, planes)
        store_i32(starts + number * 128, multiply(first, minus_half))
        store_i32(starts + number * 128 + 64, multiply(others, minus_half))
