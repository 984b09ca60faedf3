"""Tiles of a product of 8-bit integers whose zero points and scale are known at run time only, written as float32.

Rows and panels are those of ``integer_tiles``, but for the order of columns: lane ``l`` of vector ``v`` is column ``16 * v + l``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, moved
from ort_sdk_cpu.simd.memory import emit_load, splat
from ort_sdk_cpu.simd.vector_types import F32, I8, I32, VF32, VI32, operation

from .tile import PANEL, ROWS, UNIT_ROWS, Operands, emit_columns, emit_store_columns, emit_sums, less_zero_points

__all__ = ["Finish", "emit_finish", "emit_finished", "float_tile_of", "float_unit_tile_of"]

_COLUMN_BYTES = 4 * PANEL
_WORD = 8


class Finish(NamedTuple):
    """What follows the sums: LLVM values."""

    scales: list[Any]
    bias: list[Any]
    low: Any
    high: Any
    zero_points: list[Any]
    """Of the columns; none if weights have no zero point."""


def _scalar(builder: Any, numbers: Any, place: int) -> Any:
    return emit_load(builder, builder.add(numbers, constant(_WORD * place)), F32)


def _negative_zero_point(builder: Any, numbers: Any, flip: Any) -> Any:
    """Of x as uint8, in every lane."""
    place = emit_load(builder, numbers, ir.IntType(64))
    byte = builder.zext(emit_load(builder, place, I8), I32)
    if flip is not None:
        byte = builder.xor(byte, builder.and_(builder.trunc(flip, I32), ir.Constant(I32, 255)))
    return splat(builder, builder.neg(byte))


def emit_finish(builder: Any, columns: Any, numbers: Any, *, has_zero_points: bool) -> Finish:
    """LLVM code of a load of what belongs to columns: behind their sums, scales, a bias, and zero points."""
    scale = splat(builder, emit_load(builder, emit_load(builder, builder.add(numbers, constant(_WORD)), ir.IntType(64)), F32))
    own, bias = (emit_columns(builder, builder.add(columns, constant(_COLUMN_BYTES * place)), VF32) for place in (1, 2))
    low, high = (splat(builder, _scalar(builder, numbers, place)) for place in (2, 3))
    zeros = emit_columns(builder, builder.add(columns, constant(3 * _COLUMN_BYTES)), VI32) if has_zero_points else []
    return Finish([builder.fmul(value, scale) for value in own], bias, low, high, zeros)


def emit_finished(builder: Any, row: list[Any], given: Finish) -> list[Any]:
    """LLVM code of float32 of a row's sums."""
    if given.zero_points:
        row = less_zero_points(builder, row, given.zero_points)
    found = []
    for value, scale, bias in zip(row, given.scales, given.bias, strict=True):
        real = builder.fadd(builder.fmul(builder.sitofp(value, VF32), scale), bias)
        real = builder.select(builder.fcmp_ordered("<", real, given.low), given.low, real)
        found.append(builder.select(builder.fcmp_ordered(">", real, given.high), given.high, real))
    return found


def _tile(
    builder: Any, rows: Any, most_rows: int, given: Operands, columns: Any, numbers: Any, out: tuple[Any, Any, Any]
) -> None:
    """``given`` for any number of rows; ``out``: address, bytes from row to row, columns there are."""

    def emit(case: int) -> None:
        zero_point = _negative_zero_point(builder, numbers, given.flip)
        start = [builder.mul(value, zero_point) for value in emit_columns(builder, columns, VI32)]
        sums = emit_sums(builder, given._replace(rows=case), start)
        finish = emit_finish(builder, columns, numbers, has_zero_points=given.units is not None)
        for row, values in enumerate(sums):
            emit_store_columns(builder, moved(builder, out[0], row, out[1]), emit_finished(builder, values, finish), out[2])

    emit_choice(builder, rows, range(1, most_rows + 1), emit)


def float_tile_of(*, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8."""

    @operation(types.none, *[types.intp] * 15)
    def float_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        flip: Any,
        w: Any,
        columns: Any,
        soon: Any,
        soon_step: Any,
        numbers: Any,
        out: Any,
        out_row: Any,
        left: Any,
    ) -> None:
        """Multiply, and write sums * scale + bias, within bounds.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``ROWS``.
            x: see ``quantized_tile``, like all up to ``soon_step`` but for ``columns``.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: address of the 64 columns' sums of weights less zero points (int32) and, each behind the other, their scales
                and their bias (float32) and their zero points (int32).
            soon: see there.
            soon_step: see there.
            numbers: address of four words: addresses of x's zero point, a byte, and of its scale (float32); both bounds
                (float32).
            out: address of the first row's results.
            out_row: bytes from row to row.
            left: columns there are from the first on; the others are not written.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step)
        _tile(builder, rows, ROWS, given, columns, numbers, (out, out_row, left))

    return float_tile


def float_unit_tile_of(*, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8."""

    @operation(types.none, *[types.intp] * 16)
    def float_unit_tile(
        builder: Any,
        rows: Any,
        x: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        steps: Any,
        flip: Any,
        w: Any,
        columns: Any,
        soon: Any,
        soon_step: Any,
        numbers: Any,
        out: Any,
        out_row: Any,
        left: Any,
        units: Any,
    ) -> None:
        """As ``float_tile``, for weights that have the columns' zero points.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``UNIT_ROWS``.
            x: as there, like all that is not named below.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: see there.
            soon: see there.
            soon_step: see there.
            numbers: see there.
            out: see there.
            out_row: see there.
            left: see there.
            units: address of four bytes for each step of each line: 1 for what belongs to the window, 0 for what does not.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step, units)
        _tile(builder, rows, UNIT_ROWS, given, columns, numbers, (out, out_row, left))

    return float_unit_tile
