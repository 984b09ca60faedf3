"""Normalizer, Scaler, Imputer and OneHotEncoder, of rows of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.features import Imputer, Normalizer, OneHotEncoder, Scaler
from ort_sdk_cpu.simd.arithmetic import (
    absolute,
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    select_less,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.memory import load_f32_masked, load_f32_masked_or, read_f32, read_i64, store_f32_masked, write_f32

__all__ = ["imputer", "normalizer", "one_hot_encoder", "scaler"]

_MAX, _L1 = 0, 1
_LARGEST_INTEGER = np.float32(9.2e18)
"""About the largest float32 that is an int64."""


@inline
def _norm(x: int, width: int, norm: int) -> Any:
    # The norm is the same for all rows, so that its test in the loop is predicted.
    lowest, total = splat_f32(np.float32(-np.inf)), zero_f32()
    largest = lowest
    for element in range(0, width, 16):
        left = min(width - element, 16)
        if norm == _MAX:
            largest = maximum(load_f32_masked_or(x + element * 4, left, lowest), largest)
        elif norm == _L1:
            total = add(total, absolute(load_f32_masked(x + element * 4, left)))
        else:
            value = load_f32_masked(x + element * 4, left)
            total = fused_multiply_add(value, value, total)
    if norm == _MAX:
        return reduce_max(largest)
    return reduce_add(total) if norm == _L1 else np.sqrt(reduce_add(total))


@task
def normalizer(args: Normalizer, thread: int, threads: int) -> None:
    """Rows divided by their norms, if these are not 0; each thread has a range of rows, as in the tasks below."""
    rows, width = args.rows, args.width
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        norm = _norm(x, width, args.norm)
        divisor = splat_f32(norm if norm != np.float32(0) else np.float32(1))
        for element in range(0, width, 16):
            left = min(width - element, 16)
            store_f32_masked(out + element * 4, divide(load_f32_masked(x + element * 4, left), divisor), left)


@task
def scaler(args: Scaler, thread: int, threads: int) -> None:
    """(x - offset) * scale."""
    rows, width, offsets, scales = args.rows, args.width, args.offsets, args.scales
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        for element in range(0, width, 16):
            left = min(width - element, 16)
            # Not one multiplication and addition with -offset * scale: that would round otherwise than ONNX's definition.
            shifted = subtract(load_f32_masked(x + element * 4, left), load_f32_masked(offsets + element * 4, left))
            store_f32_masked(out + element * 4, multiply(shifted, load_f32_masked(scales + element * 4, left)), left)


@inline
def _where_not_nan(x: Any, value: Any, other: Any) -> Any:
    """Lanes of ``value``, but of ``other`` where x is NaN."""
    # NaN is neither below infinity nor above its opposite; x may be infinite itself.
    infinite = splat_f32(np.float32(np.inf))
    return select_less(x, infinite, value, select_less(subtract(zero_f32(), infinite), x, value, other))


@task
def imputer(args: Imputer, thread: int, threads: int) -> None:
    """Elements that equal a value, replaced by one value for each column."""
    rows, width, replaced = args.rows, args.width, splat_f32(args.replaced)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        for element in range(0, width, 16):
            left = min(width - element, 16)
            value, other = load_f32_masked(x + element * 4, left), load_f32_masked(args.values + element * 4, left)
            # NaN equals nothing, itself included: it has a test of its own, and must not count as equal to another value either.
            if args.replaced_is_nan:
                found = _where_not_nan(value, value, other)
            else:
                found = select_less(value, replaced, value, select_less(replaced, value, value, other))
                found = _where_not_nan(value, found, value)
            store_f32_masked(out + element * 4, found, left)


@inline
def _entry(args: OneHotEncoder, element: int) -> int:
    """Index of an element's entry in the table; the last for what is not in it."""
    entry: int = args.last
    if not args.x_is_float:
        entry = read_i64(args.x + element * 8) - args.least
    elif abs(read_f32(args.x + element * 4)) < _LARGEST_INTEGER:
        entry = int(read_f32(args.x + element * 4)) - args.least
    return entry if 0 <= entry < args.last else args.last


@task
def one_hot_encoder(args: OneHotEncoder, thread: int, threads: int) -> None:
    """A one in a row of zeros for each element; each thread has a range of elements."""
    # Categories are mostly a range of integers: a table is one load, where a search would be several branches.
    elements, width = args.elements, args.categories
    for element in range(elements * thread // threads, elements * (thread + 1) // threads):
        row = args.out + element * width * 4
        for column in range(0, width, 16):
            store_f32_masked(row + column * 4, zero_f32(), min(width - column, 16))
        position = read_i64(args.positions + _entry(args, element) * 8)
        if position >= 0:
            write_f32(row + position * 4, np.float32(1))
