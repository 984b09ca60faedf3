"""Quantization of float32 by its own range."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    maximum,
    minimum,
    reduce_max,
    round_to_even,
    splat_f32,
    subtract,
    to_i32,
    zero_f32,
)
from ort_sdk_cpu.simd.bytes import store_i8_first
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_i8, write_f32

__all__ = ["quantize", "quantize_by_range", "quantize_by_ranges", "range_of", "ranges_of_spans", "scale_and_zero_point"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_STEPS = np.float32(255)


@inner
def range_of(x: int, count: int) -> Any:
    """(lowest, highest) in vectors, zero among them."""
    low, high, low_2, high_2 = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = count // 32 * 32
    for place in range(0, whole, 32):
        value, second = load_f32(x + place * 4), load_f32(x + place * 4 + 64)
        low, high = minimum(low, value), maximum(high, value)
        low_2, high_2 = minimum(low_2, second), maximum(high_2, second)
    for place in range(whole, count, 16):
        value = load_f32_first(x + place * 4, count - place)
        low, high = minimum(low, value), maximum(high, value)
    return minimum(low, low_2), maximum(high, high_2)


@inner
def scale_and_zero_point(low_lanes: Any, high_lanes: Any) -> Any:
    """The scale, and the zero point in every lane, of a range in vectors."""
    low, high = -reduce_max(subtract(zero_f32(), low_lanes)), reduce_max(high_lanes)
    scale = _ONE if low == high else (high - low) / _STEPS
    most = splat_f32(_STEPS)
    return scale, round_to_even(minimum(most, maximum(zero_f32(), divide(splat_f32(-low), splat_f32(scale)))))


@inner
def quantize(x: int, out: int, count: int, scale: Any, zero_point: Any) -> None:
    """As uint8, by a scale and the zero point in every lane."""
    steps, most = splat_f32(scale), splat_f32(_STEPS)
    whole = count // 16 * 16
    for place in range(0, whole, 16):
        value = add(round_to_even(divide(load_f32(x + place * 4), steps)), zero_point)
        store_i8(out + place, to_i32(minimum(most, maximum(zero_f32(), value))))
    if whole < count:
        value = add(round_to_even(divide(load_f32_first(x + whole * 4, count - whole), steps)), zero_point)
        store_i8_first(out + whole, to_i32(minimum(most, maximum(zero_f32(), value))), count - whole)


@task
def quantize_by_range(record: int, _part: int, _parts: int) -> None:
    """Quantize to uint8.

    Arguments: addresses of x, of the result, of its scale (float32) and its zero point (uint8); count.
    """
    x, out, count = argument(record, 0), argument(record, 1), argument(record, 4)
    low, high = range_of(x, count)
    scale, zero_point = scale_and_zero_point(low, high)
    write_f32(argument(record, 2), scale)
    store_i8_first(argument(record, 3), to_i32(zero_point), 1)
    quantize(x, out, count, scale, zero_point)


@inner
def _span(count: int, spans: int, index: int) -> tuple[int, int]:
    """First and last but one number of a span: whole vectors but for the last's end."""
    vectors = (count + 15) // 16
    return vectors * index // spans * 16, min(count, vectors * (index + 1) // spans * 16)


@task
def ranges_of_spans(record: int, part: int, parts: int) -> None:
    """Range of each of some pieces of an array.

    Arguments: addresses of x and of the ranges, 128 bytes each; count, spans.
    """
    count, spans = argument(record, 2), argument(record, 3)
    for index in range(spans * part // parts, spans * (part + 1) // parts):
        first, stop = _span(count, spans, index)
        low, high = range_of(argument(record, 0) + first * 4, stop - first)
        store_f32(argument(record, 1) + index * 128, low)
        store_f32(argument(record, 1) + index * 128 + 64, high)


@task
def quantize_by_ranges(record: int, part: int, parts: int) -> None:
    """The same as ``quantize_by_range``, once the ranges of all spans are there.

    Arguments: addresses of x, of the result, of its scale and its zero point, and of the ranges; count, spans.
    """
    ranges, count, spans = argument(record, 4), argument(record, 5), argument(record, 6)
    low, high = zero_f32(), zero_f32()
    for index in range(spans):
        low = minimum(low, load_f32(ranges + index * 128))
        high = maximum(high, load_f32(ranges + index * 128 + 64))
    scale, zero_point = scale_and_zero_point(low, high)
    if part == 0:
        write_f32(argument(record, 2), scale)
        store_i8_first(argument(record, 3), to_i32(zero_point), 1)
    for index in range(spans * part // parts, spans * (part + 1) // parts):
        first, stop = _span(count, spans, index)
        quantize(argument(record, 0) + first * 4, argument(record, 1) + first, stop - first, scale, zero_point)
