"""Features scaled, normalized, completed and encoded, in rows of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
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
from ort_sdk_cpu.simd.memory import load_f32_first, read_f32, read_i64, store_f32_first, write_f32
from ort_sdk_cpu.simd.remainder import load_f32_first_or, select_less

__all__ = ["imputed_rows", "normalized_rows", "one_hot_rows", "scaled_rows"]

_MAX, _L1 = 0, 1
_LARGEST_INTEGER = np.float32(9.2e18)
"""About the largest float32 that is an int64."""


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


@inner
def _where_number(x: Any, found: Any, other: Any) -> Any:
    """Lanes of ``found`` where x is a number, or infinite; of ``other`` where it is neither."""
    infinite = splat_f32(np.float32(np.inf))
    return select_less(x, infinite, found, select_less(subtract(zero_f32(), infinite), x, found, other))


@task
def imputed_rows(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width, values, marker, whether that is NaN): what equals the marker replaced, by one value per column."""
    rows, width, marker = argument(record, 2), argument(record, 3), splat_f32(number(record, 5))
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4
        for element in range(0, width, 16):
            left = min(width - element, 16)
            value, other = load_f32_first(x + element * 4, left), load_f32_first(argument(record, 4) + element * 4, left)
            if argument(record, 6):
                found = _where_number(value, value, other)
            else:
                found = select_less(value, marker, value, select_less(marker, value, value, other))
                found = _where_number(value, found, value)
            store_f32_first(out + element * 4, found, left)


@inner
def _category(record: int, element: int) -> int:
    """An element's distance from the least category, which is the last entry's for those that are far away."""
    x, last = argument(record, 0), argument(record, 6)
    distance: int = last
    if not argument(record, 7):
        distance = read_i64(x + element * 8) - argument(record, 5)
    elif abs(read_f32(x + element * 4)) < _LARGEST_INTEGER:
        distance = np.int64(read_f32(x + element * 4)) - argument(record, 5)
    return distance if 0 <= distance < last else last


@task
def one_hot_rows(record: int, part: int, parts: int) -> None:
    """(x, out, elements, categories, positions, least, last of them, whether x is float32): a one in a row of zeros for each.

    Positions are int64, one for each integer from the least on, -1 for those that are no category, as the last one.
    """
    elements, width = argument(record, 2), argument(record, 3)
    for element in range(elements * part // parts, elements * (part + 1) // parts):
        row = argument(record, 1) + element * width * 4
        for column in range(0, width, 16):
            store_f32_first(row + column * 4, zero_f32(), min(width - column, 16))
        position = read_i64(argument(record, 4) + _category(record, element) * 8)
        if position >= 0:
            write_f32(row + position * 4, np.float32(1))
