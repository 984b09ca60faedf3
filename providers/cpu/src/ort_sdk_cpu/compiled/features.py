"""Features scaled and normalized, in rows of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.memory import load_f32_first, store_f32_first
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.rests import load_f32_first_or

__all__ = ["normalized_rows", "scaled_rows"]

_MAX, _L1 = 0, 1


@inner
def _divisor(x: int, width: int, norm: int) -> Any:
    lowest, total = splat_f32(np.float32(-np.inf)), zero_f32()
    largest = lowest
    for element in range(0, width, 16):
        left = min(width - element, 16)
        if norm == _MAX:
            largest = maximum(load_f32_first_or(x + element * 4, left, lowest), largest)
        elif norm == _L1:
            total = add(total, absolute(load_f32_first(x + element * 4, left)))
        else:
            value = load_f32_first(x + element * 4, left)
            total = fused_multiply_add(value, value, total)
    if norm == _MAX:
        return reduce_max(largest)
    return reduce_add(total) if norm == _L1 else np.sqrt(reduce_add(total))


@task
def normalized_rows(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width, norm): rows divided by their largest number (0), sum of magnitudes (1) or length (2), if not 0."""
    rows, width, norm = argument(record, 2), argument(record, 3), argument(record, 4)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4
        by = _divisor(x, width, norm)
        factor = splat_f32(by if by != np.float32(0) else np.float32(1))
        for element in range(0, width, 16):
            left = min(width - element, 16)
            store_f32_first(out + element * 4, divide(load_f32_first(x + element * 4, left), factor), left)


@task
def scaled_rows(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width, offsets, factors): (x - offset) * factor, with one of each per column."""
    rows, width, offsets, factors = argument(record, 2), argument(record, 3), argument(record, 4), argument(record, 5)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4
        for element in range(0, width, 16):
            left = min(width - element, 16)
            shifted = subtract(load_f32_first(x + element * 4, left), load_f32_first(offsets + element * 4, left))
            store_f32_first(out + element * 4, multiply(shifted, load_f32_first(factors + element * 4, left)), left)
