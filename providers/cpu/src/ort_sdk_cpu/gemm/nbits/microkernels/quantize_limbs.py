"""Activations as integers of 31 bits in four limbs of 8 bits: their products are more exact than those of float32.

In each block, ``x = scale * (2**24 a + 2**16 b + 2**8 c + d)``, where a, b, c and d are int8 and ``scale`` is a power of two, the
largest one in the block times 2**-29. Numbers of 2**-6 of the largest lose nothing, others less than 2**-29 of it. Each limb has
a *line* of memory of its own.

Codes stand for numbers from half their range, yet are multiplied unsigned: sums of products *start* from minus half the range
times the limbs' sum. Starts are kept in two int32, of the first two limbs together, as 256 a + b, and the others, as 256 c + d.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import (
    add,
    bit_and,
    floor_power_of_two,
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
    to_i32,
    zero_f32,
    zero_i32,
)
from ort_sdk_cpu.simd.int8 import dot_u8_i8
from ort_sdk_cpu.simd.memory import load_f32_masked, load_i32, load_i32_masked, store_i8, store_i32, write_f32

from .quantize_blocks import clear_padding, padded_size, separate_planes

__all__ = ["quantize_row_to_limbs"]

_LIMBS = 4

_UNIT = np.float32(2**-29)
_SMALLEST_SCALE = np.float32(2**-126)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_ONES = np.int32(0x01010101)


@inline
def _last_limb(value: Any) -> Any:
    return shift_right_signed(shift_left(value, 24), 24)


@inline
def _largest_magnitude(row: int, count: int) -> Any:
    """That of some float32, infinite or NaN if one of them is."""
    bits = zero_i32()
    for element in range(0, count, 16):
        bits = maximum_i32(bits, bit_and(load_i32_masked(row + element * 4, count - element), splat_i32(_MAGNITUDE)))
    return reduce_max_bits(bits)


@inline
def _quantize_block(row: int, count: int, target: int, stride: int, scale_place: int, sum_place: int) -> Any:
    """The limbs, scale and sum of a block's elements, which is returned, too; zeros up to whole vectors."""
    # A power of two: scaling rounds nothing off.
    scale = max(floor_power_of_two(_largest_magnitude(row, count)) * _UNIT, _SMALLEST_SCALE)
    inverse, total = splat_f32(np.float32(1) / scale), zero_f32()
    for element in range(0, count, 16):
        x = load_f32_masked(row + element * 4, count - element)
        total = add(total, x)
        rest = to_i32(round_to_even(multiply(x, inverse)))
        # From the last limb on: each is signed, and what is left is divided by 256 exactly.
        for limb in range(_LIMBS - 1, 0, -1):
            last = _last_limb(rest)
            store_i8(target + limb * stride + element, last)
            rest = shift_right_signed(subtract(rest, last), 8)
        store_i8(target + element, rest)
    value = reduce_add(total)
    write_f32(scale_place, scale)
    write_f32(sum_place, value)
    return value


@inline
def _pair_of_limbs(total: Any, place: int, stride: int) -> Any:
    """Add 256 times the sums of the bytes of each lane of a line, and those of the next line."""
    ones = splat_i32(_ONES)
    # A dot product with ones adds up four bytes.
    total = add(total, shift_left(dot_u8_i8(zero_i32(), ones, load_i32(place)), 8))
    return dot_u8_i8(total, ones, load_i32(place + stride))


@inline
def _lane_sums(place: int, stride: int, planes: int) -> Any:
    """Of the limbs of each lane of a span."""
    first, others = zero_i32(), zero_i32()
    for plane in range(planes):
        line = place + plane * 64
        first = _pair_of_limbs(first, line, stride)
        others = _pair_of_limbs(others, line + 2 * stride, stride)
    return first, others


@inline
def quantize_row_to_limbs(row: int, size: int, block: int, planes: int, target: int, stride: int, scales: int, sums: int) -> None:
    """Quantize a row, and deinterleave the elements that share a byte of the weight.

    Args:
        row: address of ``size`` float32.
        size: elements.
        block: elements with one scale; a multiple of 16.
        planes: elements that share a byte of the weight.
        target: lines in the order of ``quantize_row``, the limbs' and, behind them, the starts: for each span of 64 * planes
            elements, 16 int32 of the first two limbs' lanes, 16 of the others'.
        stride: bytes from line to line.
        scales: float32 scale of each block.
        sums: float32 sum of each block's elements and, behind them, of all: infinite or NaN if one of them is.
    """
    whole, place = np.float32(0), 0
    for start in range(0, size, block):
        count = min(block, size - start)
        whole += _quantize_block(row + start * 4, count, target + start, stride, scales + place, sums + place)
        place += 4
    write_f32(sums + place, whole)
    for limb in range(_LIMBS):
        clear_padding(target + limb * stride, size, block, planes)
        separate_planes(target + limb * stride, size, block, planes)
    # Codes are unsigned, and stand for numbers around zero.
    minus_half, starts, span = splat_i32(np.int32(-(1 << (8 // planes - 1)))), target + _LIMBS * stride, 64 * planes
    for number in range(padded_size(size, block, planes) // span):
        first, others = _lane_sums(target + number * span, stride, planes)
        store_i32(starts + number * 128, multiply(first, minus_half))
        store_i32(starts + number * 128 + 64, multiply(others, minus_half))
