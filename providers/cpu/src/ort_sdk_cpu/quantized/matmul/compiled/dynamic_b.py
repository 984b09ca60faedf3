"""GEMM of 8-bit matrices that both come with each run, as int32.

A thread takes panels of 64 columns of B: it packs one into its workspace, with what belongs to its columns, and multiplies
all rows of A with it. Zero points are handled as in gemmlowp (Jacob & Warden 2015): by sums of A's rows and of B's columns.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.quantized.matmul.arguments.dynamic_b import GemmDynamicB
from ort_sdk_cpu.quantized.microkernels.tile import (
    PANEL,
    ROWS_WITH_ONES,
    Operands,
    emit_columns,
    emit_store_columns,
    emit_subtract_zero_points,
    emit_sums,
)
from ort_sdk_cpu.simd.arithmetic import add, bit_xor, multiply, shift_left, splat_i32, subtract, zero_i32
from ort_sdk_cpu.simd.int8 import broadcast_u8, dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_switch
from ort_sdk_cpu.simd.memory import load_u8, load_u8_masked, read_u8, store_i32
from ort_sdk_cpu.simd.vector_types import LANES, VI32, operation

__all__ = ["gemm_dynamic_b"]

_STEP_BYTES = 4 * PANEL
_ONES = 0x01010101


@operation(types.none, *[types.intp] * 11)
def _sum_tile(
    builder: Any,
    rows: Any,
    x: Any,
    x_row: Any,
    steps: Any,
    sign: Any,
    panel: Any,
    ones: Any,
    columns: Any,
    out: Any,
    out_row: Any,
    left: Any,
) -> None:
    """Up to ``ROWS_WITH_ONES`` rows with a panel; at ``columns`` are what its columns' sums begin with, then zero points."""
    given = Operands(0, x, x_row, constant(0), constant(1), steps, sign, panel, panel, constant(0), ones)

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32))
        zeros = emit_columns(builder, builder.add(columns, constant(_STEP_BYTES)), VI32)
        for row, values in enumerate(sums):
            centered = emit_subtract_zero_points(builder, values, zeros)
            emit_store_columns(builder, advance(builder, out, row, out_row), centered, left)

    emit_switch(builder, rows, range(1, ROWS_WITH_ONES + 1), emit)


@inline
def _four_rows(args: GemmDynamicB, row: int, source: int, left: int) -> Any:
    """Sixteen columns of four rows of B as int8, four bytes for each column; zeros behind the last row."""
    pitch, sign = args.columns, args.b_sign
    found = zero_i32()
    for index in range(4):
        if row + index < args.k:
            address = source + index * pitch
            value = load_u8(address) if left >= 16 else load_u8_masked(address, left)
            found = add(found, shift_left(bit_xor(value, splat_i32(sign)), 8 * index))
    return found


@inline
def _pack_columns(args: GemmDynamicB, b: int, first: int, vector: int, panel: int, columns: int) -> None:
    """Sixteen columns of a panel in VNNI order, with what their sums begin with and their zero points."""
    left = args.columns - first
    total, k = zero_i32(), args.k
    for row in range(0, k, 4):
        value = _four_rows(args, row, b + row * args.columns + first, left)
        store_i32(panel + row * PANEL + vector * 64, value)
        # Column sums by the instruction that multiplies: A's zero point is subtracted as zero point * column sum.
        total = dot_u8_i8(total, splat_i32(_ONES), value)
    a_value = read_u8(args.a_zero_point) if args.a_zero_point else 0
    a_shift = splat_i32(a_value ^ (args.a_sign & 255))
    b_zero, zero = args.b_zero_points, zero_i32()
    if b_zero:
        zero = load_u8_masked(b_zero + first, left) if args.has_column_zero_points else broadcast_u8(b_zero)
    # As B: signed numbers, or unsigned ones less 128.
    sign = 128
    zero = subtract(bit_xor(zero, splat_i32(sign ^ args.b_sign)), splat_i32(sign))
    start = multiply(a_shift, subtract(multiply(zero, splat_i32(k)), total))
    store_i32(columns + vector * 64, start)
    store_i32(columns + _STEP_BYTES + vector * 64, zero)


@task
def gemm_dynamic_b(args: GemmDynamicB, thread: int, threads: int) -> None:
    """GEMM: each thread has a range of panels of 64 columns, which it packs and multiplies all rows with.

    Packing B takes k * columns loads for rows * k * columns products: it is hidden from a few rows on.
    """
    rows, columns, pitch = args.rows, args.columns, args.a_row_bytes
    steps = (args.k + 3) // 4
    # Rows of A are summed by a fifth vector of ones: subtracting the zero points of B is then one multiplication per result.
    ones = args.workspace + thread * args.workspace_bytes
    for step in range(0, steps, 16):
        store_i32(ones + step * 4, splat_i32(_ONES))
    about = ones + (steps + 15) // 16 * 64
    panel = about + 2 * _STEP_BYTES
    # Units are panels of matrices: a thread packs what it multiplies, and no panel is packed twice.
    panels = (columns + PANEL - 1) // PANEL
    count = args.matrices * panels
    for unit in range(count * thread // threads, count * (thread + 1) // threads):
        matrix, first = unit // panels, unit % panels * PANEL
        b = args.b + matrix * args.b_matrix_bytes
        for vector in range(PANEL // LANES):
            _pack_columns(args, b, first + vector * LANES, vector, panel, about)
        a, out = args.a + matrix * rows * pitch, args.out + (matrix * rows * columns + first) * 4
        for row in range(0, rows, ROWS_WITH_ONES):
            here = min(ROWS_WITH_ONES, rows - row)
            _sum_tile(
                *(here, a + row * pitch, pitch, steps, args.a_sign, panel, ones),
                *(about, out + row * columns * 4, columns * 4, columns - first),
            )
