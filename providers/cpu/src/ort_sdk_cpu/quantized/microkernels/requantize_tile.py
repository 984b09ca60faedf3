"""Tiles of a product of 8-bit integers, written as 8-bit integers: columns of a panel lie in the order of ``quantized_steps``."""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, moved
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .requantize import Addend, Target, emit_addition, emit_steps, emit_summed_steps, emit_write
from .tile import Operands, emit_columns, emit_sums, less_zero_points, most_rows, most_unit_rows

__all__ = ["quantized_sum_tile_of", "quantized_tile_of", "quantized_unit_tile_of"]

_VECTOR_BYTES = 4 * LANES


def quantized_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 16)
    def quantized_tile(
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
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
    ) -> None:
        """Multiply, scale and round to 8 bits.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``most_rows``.
            x: address of the first row.
            x_row: bytes from row to row.
            x_line: bytes from line to line of a row: pieces that do not follow each other.
            lines: how many, at least one.
            steps: of four numbers in a line, at least one.
            flip: bits that are turned over in each four int8 to make them uint8.
            w: address of the panel.
            columns: address of the columns' sums to begin with (int32) and, behind them, their scales (float32).
            soon: address of what is brought into the cache meanwhile.
            soon_step: bytes of it in each step.
            zero_point: added to what is rounded, as if the result were uint8.
            out_flip: bits that are turned over in each four results.
            out: address of the first row's results.
            out_row: bytes from row to row.
            left: columns there are from the first on; the others are not written.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step)
        target = Target(zero_point, out_flip, out, out_row, left)
        _quantized(builder, rows, (most_rows(vectors), vectors), given, columns, target)

    return quantized_tile


def _quantized(builder: Any, rows: Any, most: tuple[int, int], given: Operands, columns: Any, target: Target) -> None:
    """Tiles of any number of rows up to the most, with so many vectors of columns."""
    most_of_rows, vectors = most
    behind = constant(_VECTOR_BYTES * vectors)

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        scales = emit_columns(builder, moved(builder, columns, 1, behind), VF32, vectors)
        if given.units is not None:
            zeros = emit_columns(builder, moved(builder, columns, 2, behind), VI32, vectors)
            sums = [less_zero_points(builder, values, zeros) for values in sums]
        emit_write(builder, [emit_steps(builder, row, scales) for row in sums], target)

    emit_choice(builder, rows, range(1, most_of_rows + 1), emit)


def quantized_unit_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 17)
    def quantized_unit_tile(
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
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        units: Any,
    ) -> None:
        """As ``quantized_tile``, for weights that have zero points.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``most_unit_rows``.
            x: as there, like all that is not named below.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: as there, and behind the scales the zero points (int32).
            soon: see there.
            soon_step: see there.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            units: address of four bytes for each step of each line: 1 for what belongs to the window, 0 for what does not.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step, units)
        target = Target(zero_point, out_flip, out, out_row, left)
        _quantized(builder, rows, (most_unit_rows(vectors), vectors), given, columns, target)

    return quantized_unit_tile


def quantized_sum_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 19)
    def quantized_sum_tile(
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
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        addend: Any,
        addend_flip: Any,
        numbers: Any,
    ) -> None:
        """As ``quantized_tile``, with 8-bit numbers added to the rounded result; zero point and flip are the sum's.

        Args:
            builder: of LLVM code.
            rows: as there, like all that is not named below.
            x: see there.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            flip: see there.
            w: see there.
            columns: see there.
            soon: see there.
            soon_step: see there.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            addend: address of what is added to the first row; rows are ``out_row`` apart.
            addend_flip: bits that are turned over in each four of it to make them uint8.
            numbers: address of float32, each in 8 bytes: least and greatest step of the product, its scale, zero point (as if it
                were uint8) and scale of the addend, scale of the sum and its inverse.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, flip if is_int8 else None, w, soon, soon_step)
        target = Target(zero_point, out_flip, out, out_row, left)
        _quantized_sums(builder, (rows, vectors), given, columns, target, Addend(addend, addend_flip, numbers))

    return quantized_sum_tile


def _quantized_sums(builder: Any, size: tuple[Any, int], given: Operands, columns: Any, target: Target, addend: Addend) -> None:
    """Tiles of any number of rows, with vectors of columns."""
    rows, vectors = size

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        scales = emit_columns(builder, moved(builder, columns, 1, constant(_VECTOR_BYTES * vectors)), VF32, vectors)
        steps = emit_summed_steps(builder, sums, scales, addend, emit_addition(builder, addend), target)
        emit_write(builder, steps, target)

    emit_choice(builder, rows, range(1, most_rows(vectors) + 1), emit)
