"""Products of 8-bit matrices that are both given at run time, as int32.

A thread takes panels of 64 columns: it puts one in order in its working memory, with what belongs to its columns, and multiplies
all rows with it.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.quantized.microkernels.tile import (
    PANEL,
    UNIT_ROWS,
    Operands,
    emit_columns,
    emit_store_columns,
    emit_sums,
    less_zero_points,
)
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, bit_xor, multiply, shift_left, splat_i32, subtract, zero_i32
from ort_sdk_cpu.simd.bytes import broadcast_u8
from ort_sdk_cpu.simd.int8_dot import add_products_u8_i8
from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, moved
from ort_sdk_cpu.simd.memory import load_u8, load_u8_first, read_u8, store_i32
from ort_sdk_cpu.simd.vector_types import LANES, VI32, operation

__all__ = ["multiply_given"]

_STEP_BYTES = 4 * PANEL
_ONES = 0x01010101
_A, _B, _OUT, _A_ZERO, _B_ZERO, _WORK = range(6)
_MATRICES, _ROWS, _INNER, _COLUMNS, _A_ROW, _B_MATRIX = range(6, 12)
_A_FLIP, _B_FLIP, _ZERO_STEP, _WORK_BYTES = range(12, 16)


@operation(types.none, *[types.intp] * 11)
def _sum_tile(
    builder: Any,
    rows: Any,
    x: Any,
    x_row: Any,
    steps: Any,
    flip: Any,
    panel: Any,
    units: Any,
    columns: Any,
    out: Any,
    out_row: Any,
    left: Any,
) -> None:
    """Up to ``UNIT_ROWS`` rows with a panel; at ``columns`` are its columns' sums to begin with and, behind them, zero points."""
    given = Operands(0, x, x_row, constant(0), constant(1), steps, flip, panel, panel, constant(0), units)

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32))
        zeros = emit_columns(builder, builder.add(columns, constant(_STEP_BYTES)), VI32)
        for row, values in enumerate(sums):
            emit_store_columns(builder, moved(builder, out, row, out_row), less_zero_points(builder, values, zeros), left)

    emit_choice(builder, rows, range(1, UNIT_ROWS + 1), emit)


@inner
def _four_rows(record: int, place: int, row: int, left: int) -> Any:
    """Sixteen columns of four rows of B as int8, four bytes for each column; zeros behind the last row."""
    inside, pitch, flip = argument(record, _INNER), argument(record, _COLUMNS), argument(record, _B_FLIP)
    found = zero_i32()
    for index in range(4):
        if row + index < inside:
            source = place + index * pitch
            value = load_u8(source) if left >= 16 else load_u8_first(source, left)
            found = add(found, shift_left(bit_xor(value, splat_i32(flip)), 8 * index))
    return found


@inner
def _order_columns(record: int, b: int, first: int, vector: int, work: int, columns: int) -> None:
    """Sixteen columns of a panel, and what belongs to them."""
    left = argument(record, _COLUMNS) - first
    total, inside = zero_i32(), argument(record, _INNER)
    for row in range(0, inside, 4):
        value = _four_rows(record, b + row * argument(record, _COLUMNS) + first, row, left)
        store_i32(work + row * PANEL + vector * 64, value)
        total = add_products_u8_i8(total, splat_i32(_ONES), value)
    a_zero = argument(record, _A_ZERO)
    a_value = read_u8(a_zero) if a_zero else 0
    a_shift = splat_i32(a_value ^ (argument(record, _A_FLIP) & 255))
    b_zero, zero = argument(record, _B_ZERO), zero_i32()
    if b_zero:
        zero = load_u8_first(b_zero + first, left) if argument(record, _ZERO_STEP) else broadcast_u8(b_zero)
    # As B: signed numbers, or unsigned ones less 128.
    sign = 128
    zero = subtract(bit_xor(zero, splat_i32(sign ^ argument(record, _B_FLIP))), splat_i32(sign))
    start = multiply(a_shift, subtract(multiply(zero, splat_i32(inside)), total))
    store_i32(columns + vector * 64, start)
    store_i32(columns + _STEP_BYTES + vector * 64, zero)


@task
def multiply_given(record: int, part: int, parts: int) -> None:
    """The sums of (A - A's zero point) * (B - B's zero point).

    Arguments: addresses of A, B, the output (int32), A's zero point and B's (0: there are none), working memory; matrices; rows
    of A, what is summed, columns of B; bytes from row to row of A, a multiple of four, and from matrix to matrix of B; what is
    turned over in each four numbers of A and in each one of B, so that they are unsigned and signed; whether each column has its
    own zero point; bytes of working memory of a thread.
    """
    rows, columns, inside = argument(record, _ROWS), argument(record, _COLUMNS), argument(record, _INNER)
    steps, pitch = (inside + 3) // 4, argument(record, _A_ROW)
    units = argument(record, _WORK) + part * argument(record, _WORK_BYTES)
    for step in range(0, steps, 16):
        store_i32(units + step * 4, splat_i32(_ONES))
    about = units + (steps + 15) // 16 * 64
    panel = about + 2 * _STEP_BYTES
    panels = (columns + PANEL - 1) // PANEL
    count = argument(record, _MATRICES) * panels
    for unit in range(count * part // parts, count * (part + 1) // parts):
        matrix, first = unit // panels, unit % panels * PANEL
        b = argument(record, _B) + matrix * argument(record, _B_MATRIX)
        for vector in range(PANEL // LANES):
            _order_columns(record, b, first + vector * LANES, vector, panel, about)
        a, out = argument(record, _A) + matrix * rows * pitch, argument(record, _OUT) + (matrix * rows * columns + first) * 4
        for row in range(0, rows, UNIT_ROWS):
            here = min(UNIT_ROWS, rows - row)
            _sum_tile(
                *(here, a + row * pitch, pitch, steps, argument(record, _A_FLIP), panel, units),
                *(about, out + row * columns * 4, columns * 4, columns - first),
            )
