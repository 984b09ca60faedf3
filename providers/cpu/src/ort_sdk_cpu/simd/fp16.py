"""Matrices of float16 as float32: in panels, and as products with one row."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner

from .arithmetic import add, fused_multiply_add, multiply, reduce_add, zero_f32
from .memory import (
    LAST_BYTE,
    broadcast_f32,
    emit_load,
    emit_load_first,
    load_f32,
    load_f32_first,
    prefetch_second,
    store_f32,
    store_f32_first,
    write_f32,
)
from .shuffles import transpose_rows
from .vector_types import LANES, VF32, f32x16, operation

__all__ = ["SPARE_BYTES", "columns_times_row", "load_f16", "load_f16_first", "rows_times_row", "widen_columns", "widen_rows"]

SPARE_BYTES = 2048
"""Working memory of ``widen_rows``."""
_SUMS = 4096
"""Columns of which sums are made at a time."""
_HALVES, _WORDS = ir.VectorType(ir.HalfType(), LANES), ir.VectorType(ir.IntType(16), LANES)


@operation(f32x16, types.intp)
def load_f16(builder: Any, address: Any) -> Any:
    """16 float16."""
    return builder.fpext(emit_load(builder, address, _HALVES), VF32)


@operation(f32x16, types.intp, types.intp)
def load_f16_first(builder: Any, address: Any, count: Any) -> Any:
    """The first ``count`` of 16 float16; zeros in the other lanes."""
    words = emit_load_first(builder, address, count, _WORDS, "v16i16")
    return builder.fpext(builder.bitcast(words, _HALVES), VF32)


@inner
def widen_columns(b: int, b_row: int, steps: int, left: int, panel: int, width: int) -> None:
    """Rows of a matrix as rows of a panel, zeros behind the last column; what is right of them is asked for."""
    for step in range(steps):
        place, target = b + step * b_row, panel + step * width * 4
        prefetch_second(place + 4 * width + LAST_BYTE)
        for column in range(0, width, 16):
            if left - column >= 16:
                store_f32(target + column * 4, load_f16(place + column * 2))
            else:
                store_f32(target + column * 4, load_f16_first(place + column * 2, left - column))


@inner
def widen_rows(b: int, b_row: int, steps: int, left: int, panel: int, width: int, spare: int) -> None:
    """Rows of a matrix as columns of a panel, of no use behind the last row; what is below them is asked for."""
    for first in range(0, min(width, left), 16):
        count = min(16, left - first)
        for step in range(0, steps, 16):
            for row in range(count):
                place = b + (first + row) * b_row + step * 2
                prefetch_second(place + width * b_row + LAST_BYTE)
                store_f32(spare + row * 64, load_f16_first(place, steps - step))
            transpose_rows(spare, 64, count, 16, spare + 1024)
            for index in range(min(16, steps - step)):
                store_f32(panel + ((step + index) * width + first) * 4, load_f32(spare + 1024 + index * 64))


@inner
def _add_row(a: int, b: int, columns: int, c: int, is_first: int) -> None:
    """Add a number times a row to sums, or write it there."""
    factor = broadcast_f32(a)
    for column in range(0, columns, 16):
        left = columns - column
        found = multiply(factor, load_f16_first(b + column * 2, left))
        store_f32_first(c + column * 4, found if is_first else add(found, load_f32_first(c + column * 4, left)), left)


@inner
def _add_eight_rows(a: int, b: int, b_row: int, columns: int, c: int, is_first: int) -> None:
    """The same for eight numbers and rows; of the columns, as many as fill vectors."""
    p, q, r, s = broadcast_f32(a), broadcast_f32(a + 4), broadcast_f32(a + 8), broadcast_f32(a + 12)
    t, u, v, w = broadcast_f32(a + 16), broadcast_f32(a + 20), broadcast_f32(a + 24), broadcast_f32(a + 28)
    for column in range(0, columns // 16 * 16, 16):
        upper, lower, target = b + column * 2, b + 4 * b_row + column * 2, c + column * 4
        ahead = upper + 8 * b_row + LAST_BYTE
        for row in range(8):
            prefetch_second(ahead + row * b_row)
        x = multiply(p, load_f16(upper))
        y = multiply(t, load_f16(lower))
        x = fused_multiply_add(q, load_f16(upper + b_row), x)
        y = fused_multiply_add(u, load_f16(lower + b_row), y)
        x = fused_multiply_add(r, load_f16(upper + 2 * b_row), x)
        y = fused_multiply_add(v, load_f16(lower + 2 * b_row), y)
        x = fused_multiply_add(s, load_f16(upper + 3 * b_row), x)
        y = fused_multiply_add(w, load_f16(lower + 3 * b_row), y)
        store_f32(target, add(x, y) if is_first else add(load_f32(target), add(x, y)))


@inner
def columns_times_row(a: int, b: int, b_row: int, k: int, columns: int, c: int) -> None:
    """Product of a row of ``k`` numbers and a matrix of so many rows, some columns at a time: their sums stay near the core."""
    whole = k // 8 * 8
    for first in range(0, columns, _SUMS):
        count, place, target = min(_SUMS, columns - first), b + first * 2, c + first * 4
        filled = count // 16 * 16
        for step in range(0, whole, 8):
            row = place + step * b_row
            _add_eight_rows(a + step * 4, row, b_row, count, target, int(step == 0))
            for index in range(8 if filled < count else 0):
                _add_row(
                    a + (step + index) * 4,
                    row + index * b_row + filled * 2,
                    count - filled,
                    target + filled * 4,
                    int(step + index == 0),
                )
        for step in range(whole, k):
            _add_row(a + step * 4, place + step * b_row, count, target, int(step == 0))


@inner
def rows_times_row(a: int, b: int, b_row: int, k: int, rows: int, c: int) -> None:
    """Dot products of a row of ``k`` numbers with rows of a matrix."""
    whole = k // 32 * 32
    for row in range(rows):
        place, x, y = b + row * b_row, zero_f32(), zero_f32()
        for step in range(0, whole, 32):
            x = fused_multiply_add(load_f32(a + step * 4), load_f16(place + step * 2), x)
            y = fused_multiply_add(load_f32(a + step * 4 + 64), load_f16(place + step * 2 + 32), y)
        for step in range(whole, k, 16):
            left = k - step
            x = fused_multiply_add(load_f32_first(a + step * 4, left), load_f16_first(place + step * 2, left), x)
        write_f32(c + row * 4, reduce_add(add(x, y)))
