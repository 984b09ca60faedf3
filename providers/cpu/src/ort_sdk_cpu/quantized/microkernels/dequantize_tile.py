"""GEMM tiles of 8-bit integers whose sums are dequantized to float32, by a zero point and a scale that come with each run.

Rows and panels are those of ``tile``, but for the order of columns: lane ``l`` of vector ``v`` is column ``16 * v + l``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_switch
from ort_sdk_cpu.simd.memory import emit_load, splat
from ort_sdk_cpu.simd.vector_types import F32, I8, I32, VF32, VI32, operation

from .tile import PANEL, ROWS, ROWS_WITH_ONES, Operands, emit_columns, emit_store_columns, emit_subtract_zero_points, emit_sums

__all__ = ["Epilogue", "dequantize_tile_of", "dequantize_zero_points_tile_of", "emit_dequantized", "emit_epilogue"]

_COLUMN_BYTES = 4 * PANEL
_WORD = 8


class Epilogue(NamedTuple):
    """What follows the sums: LLVM values."""

    scales: list[Any]
    bias: list[Any]
    low: Any
    high: Any
    zero_points: list[Any]
    """Of the columns; none if weights have no zero point."""


def _scalar(builder: Any, dequantization: Any, index: int) -> Any:
    return emit_load(builder, builder.add(dequantization, constant(_WORD * index)), F32)


def _negative_zero_point(builder: Any, dequantization: Any, sign: Any) -> Any:
    """Of x as uint8, in every lane."""
    address = emit_load(builder, dequantization, ir.IntType(64))
    byte = builder.zext(emit_load(builder, address, I8), I32)
    if sign is not None:
        byte = builder.xor(byte, builder.and_(builder.trunc(sign, I32), ir.Constant(I32, 255)))
    return splat(builder, builder.neg(byte))


def emit_epilogue(builder: Any, columns: Any, dequantization: Any, *, has_zero_points: bool) -> Epilogue:
    """LLVM code of a load of what belongs to columns: behind their sums, scales, a bias, and zero points."""
    scale = splat(
        builder, emit_load(builder, emit_load(builder, builder.add(dequantization, constant(_WORD)), ir.IntType(64)), F32)
    )
    own, bias = (emit_columns(builder, builder.add(columns, constant(_COLUMN_BYTES * index)), VF32) for index in (1, 2))
    low, high = (splat(builder, _scalar(builder, dequantization, index)) for index in (2, 3))
    # Zero points are last, so that all else has one offset with and without them.
    zeros = emit_columns(builder, builder.add(columns, constant(3 * _COLUMN_BYTES)), VI32) if has_zero_points else []
    # Both scales are multiplied once for all rows.
    return Epilogue([builder.fmul(value, scale) for value in own], bias, low, high, zeros)


def emit_dequantized(builder: Any, row: list[Any], given: Epilogue) -> list[Any]:
    """LLVM code of float32 of a row's sums."""
    if given.zero_points:
        row = emit_subtract_zero_points(builder, row, given.zero_points)
    found = []
    for value, scale, bias in zip(row, given.scales, given.bias, strict=True):
        # Not fused, so that the result is that of separate nodes. Selects, and no minimum and maximum: NaN passes.
        real = builder.fadd(builder.fmul(builder.sitofp(value, VF32), scale), bias)
        real = builder.select(builder.fcmp_ordered("<", real, given.low), given.low, real)
        found.append(builder.select(builder.fcmp_ordered(">", real, given.high), given.high, real))
    return found


def _tile(
    builder: Any, rows: Any, most_rows: int, given: Operands, columns: Any, dequantization: Any, out: tuple[Any, Any, Any]
) -> None:
    """``given`` for any number of rows; ``out``: address, bytes from row to row, columns there are."""

    # A case for each number of rows: sums are in registers, whose number is part of the code.
    def emit(case: int) -> None:
        # Sums of (x - zero point) * w are sums of x * w less the zero point times the column's sum of w.
        zero_point = _negative_zero_point(builder, dequantization, given.sign)
        start = [builder.mul(value, zero_point) for value in emit_columns(builder, columns, VI32)]
        sums = emit_sums(builder, given._replace(rows=case), start)
        epilogue = emit_epilogue(builder, columns, dequantization, has_zero_points=given.ones is not None)
        for row, values in enumerate(sums):
            found = emit_dequantized(builder, values, epilogue)
            emit_store_columns(builder, advance(builder, out[0], row, out[1]), found, out[2])

    emit_switch(builder, rows, range(1, most_rows + 1), emit)


def dequantize_tile_of(*, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8."""

    @operation(types.none, *[types.intp] * 15)
    def dequantize_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        sign: Any,
        w: Any,
        columns: Any,
        prefetch: Any,
        prefetch_step: Any,
        dequantization: Any,
        out: Any,
        out_row: Any,
        left: Any,
    ) -> None:
        """Multiply, and write sums * scale + bias, within bounds.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``ROWS``.
            x: see ``requantize_tile``, like all up to ``prefetch_step`` but for ``columns``.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            sign: see there.
            w: see there.
            columns: address of the 64 columns' sums of weights less zero points (int32) and, each behind the other, their scales
                and their bias (float32) and their zero points (int32).
            prefetch: see there.
            prefetch_step: see there.
            dequantization: address of four words: addresses of x's zero point, a byte, and of its scale (float32); both bounds
                (float32).
            out: address of the first row's results.
            out_row: bytes from row to row.
            left: columns there are from the first on; the others are not written.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, sign if is_int8 else None, w, prefetch, prefetch_step)
        _tile(builder, rows, ROWS, given, columns, dequantization, (out, out_row, left))

    return dequantize_tile


def dequantize_zero_points_tile_of(*, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8."""

    @operation(types.none, *[types.intp] * 16)
    def dequantize_zero_points_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        sign: Any,
        w: Any,
        columns: Any,
        prefetch: Any,
        prefetch_step: Any,
        dequantization: Any,
        out: Any,
        out_row: Any,
        left: Any,
        ones: Any,
    ) -> None:
        """As ``dequantize_tile``, for weights that have the columns' zero points.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``ROWS_WITH_ONES``.
            x: as there, like all that is not named below.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            sign: see there.
            w: see there.
            columns: see there.
            prefetch: see there.
            prefetch_step: see there.
            dequantization: see there.
            out: see there.
            out_row: see there.
            left: see there.
            ones: address of four bytes for each step of each line: 1 for what belongs to the window, 0 for what does not.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, sign if is_int8 else None, w, prefetch, prefetch_step, ones)
        _tile(builder, rows, ROWS_WITH_ONES, given, columns, dequantization, (out, out_row, left))

    return dequantize_zero_points_tile
