"""DynamicQuantizeLinear: quantization of float32 by its own range."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.quantized.arguments.dynamic import DynamicQuantize, DynamicQuantizeByRanges, Ranges
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
from ort_sdk_cpu.simd.int8 import store_i8_masked
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_i8, write_f32

__all__ = ["dynamic_quantize", "dynamic_quantize_by_ranges", "quantize", "range_of", "ranges", "scale_and_zero_point"]

_ZERO = np.float32(0)
_ONE = np.float32(1)
_LEVELS = np.float32(255)


@inline
def range_of(x: int, count: int) -> Any:
    """(lowest, highest) in vectors, zero among them: ONNX adjusts the range so that zero has an exact value.

    Two vectors of each: a minimum waits for the one before it.
    """
    low, high, low_2, high_2 = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    # Zeros behind the last element change nothing: zero is in the range anyway.
    whole = count // 32 * 32
    for index in range(0, whole, 32):
        value, second = load_f32(x + index * 4), load_f32(x + index * 4 + 64)
        low, high = minimum(low, value), maximum(high, value)
        low_2, high_2 = minimum(low_2, second), maximum(high_2, second)
    for index in range(whole, count, 16):
        value = load_f32_masked(x + index * 4, count - index)
        low, high = minimum(low, value), maximum(high, value)
    return minimum(low, low_2), maximum(high, high_2)


@inline
def scale_and_zero_point(low_lanes: Any, high_lanes: Any) -> Any:
    """The scale, and the zero point in every lane, of a range in vectors."""
    low, high = -reduce_max(subtract(zero_f32(), low_lanes)), reduce_max(high_lanes)
    scale = _ONE if low == high else (high - low) / _LEVELS
    # ONNX rounds to nearest, ties to even; of a range without extent the scale is 1, so that nothing is divided by 0.
    most = splat_f32(_LEVELS)
    return scale, round_to_even(minimum(most, maximum(zero_f32(), divide(splat_f32(-low), splat_f32(scale)))))


@inline
def quantize(x: int, out: int, count: int, scale: Any, zero_point: Any) -> None:
    """As uint8, by a scale and the zero point in every lane."""
    # Divided, and not multiplied by the reciprocal: ONNX defines x / scale, and ties would fall to the other side.
    scales, most = splat_f32(scale), splat_f32(_LEVELS)
    whole = count // 16 * 16
    for index in range(0, whole, 16):
        value = add(round_to_even(divide(load_f32(x + index * 4), scales)), zero_point)
        store_i8(out + index, to_i32(minimum(most, maximum(zero_f32(), value))))
    if whole < count:
        value = add(round_to_even(divide(load_f32_masked(x + whole * 4, count - whole), scales)), zero_point)
        store_i8_masked(out + whole, to_i32(minimum(most, maximum(zero_f32(), value))), count - whole)


@task
def dynamic_quantize(args: DynamicQuantize, _thread: int, _threads: int) -> None:
    """DynamicQuantizeLinear: two passes over x by one thread, for arrays that are worth no more."""
    low, high = range_of(args.x, args.count)
    scale, zero_point = scale_and_zero_point(low, high)
    write_f32(args.scale, scale)
    store_i8_masked(args.zero_point, to_i32(zero_point), 1)
    quantize(args.x, args.out, args.count, scale, zero_point)


@inline
def _span(count: int, spans: int, index: int) -> tuple[int, int]:
    """First element of a span and the one behind its last: whole vectors but for the end of the last span."""
    vectors = (count + 15) // 16
    return vectors * index // spans * 16, min(count, vectors * (index + 1) // spans * 16)


@task
def ranges(args: Ranges, thread: int, threads: int) -> None:
    """The range of each span. Spans do not depend on the threads there are, so both tasks may have different numbers of them."""
    for index in range(args.spans * thread // threads, args.spans * (thread + 1) // threads):
        first, stop = _span(args.count, args.spans, index)
        low, high = range_of(args.x + first * 4, stop - first)
        store_f32(args.ranges + index * 128, low)
        store_f32(args.ranges + index * 128 + 64, high)


@task
def dynamic_quantize_by_ranges(args: DynamicQuantizeByRanges, thread: int, threads: int) -> None:
    """As ``dynamic_quantize``, once the ranges of all spans are there: each thread reduces these again, which is cheap."""
    spans = args.spans
    low, high = zero_f32(), zero_f32()
    for index in range(spans):
        low = minimum(low, load_f32(args.ranges + index * 128))
        high = maximum(high, load_f32(args.ranges + index * 128 + 64))
    scale, zero_point = scale_and_zero_point(low, high)
    # One thread writes what all have worked out alike.
    if thread == 0:
        write_f32(args.scale, scale)
        store_i8_masked(args.zero_point, to_i32(zero_point), 1)
    for index in range(spans * thread // threads, spans * (thread + 1) // threads):
        first, stop = _span(args.count, spans, index)
        quantize(args.x + first * 4, args.out + first, stop - first, scale, zero_point)
