"""GEMM tiles of 8-bit integers whose sums are requantized to 8 bits: columns of a panel are in the order of ``requantize``."""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_switch
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .requantize import Addend, Target, emit_added, emit_addition, emit_requantized, emit_write
from .tile import Operands, emit_columns, emit_subtract_zero_points, emit_sums, most_rows, most_rows_with_ones

__all__ = ["requantize_add_tile_of", "requantize_tile_of", "requantize_zero_points_tile_of"]

_VECTOR_BYTES = 4 * LANES


def requantize_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 16)
    def requantize_tile(
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
        zero_point: Any,
        out_sign: Any,
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
            steps: of four elements in a line, at least one.
            sign: what makes each four int8 uint8 by exclusive or.
            w: address of the panel.
            columns: address of the columns' sums to begin with (int32) and, behind them, their scales (float32).
            prefetch: address of what is prefetched meanwhile.
            prefetch_step: bytes of it in each step.
            zero_point: added to what is rounded, as if the result were uint8.
            out_sign: what makes each four results int8 by exclusive or, or 0.
            out: address of the first row's results.
            out_row: bytes from row to row.
            left: columns there are from the first on; the others are not written.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, sign if is_int8 else None, w, prefetch, prefetch_step)
        target = Target(zero_point, out_sign, out, out_row, left)
        _requantize(builder, rows, (most_rows(vectors), vectors), given, columns, target)

    return requantize_tile


def _requantize(builder: Any, rows: Any, most: tuple[int, int], given: Operands, columns: Any, target: Target) -> None:
    """Tiles of any number of rows up to the most, with so many vectors of columns."""
    # Behind what sums begin with are scales, and behind these zero points, each as many vectors.
    most_of_rows, vectors = most
    behind = constant(_VECTOR_BYTES * vectors)

    # A case for each number of rows: sums are in registers, whose number is part of the code.
    def emit(case: int) -> None:
        # Bias and x's zero point are in what sums begin with: no additions for them.
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        # Scales are loaded behind the loop along K, which needs all registers.
        scales = emit_columns(builder, advance(builder, columns, 1, behind), VF32, vectors)
        if given.ones is not None:
            zeros = emit_columns(builder, advance(builder, columns, 2, behind), VI32, vectors)
            sums = [emit_subtract_zero_points(builder, values, zeros) for values in sums]
        emit_write(builder, [emit_requantized(builder, row, scales) for row in sums], target)

    emit_switch(builder, rows, range(1, most_of_rows + 1), emit)


def requantize_zero_points_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 17)
    def requantize_zero_points_tile(
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
        zero_point: Any,
        out_sign: Any,
        out: Any,
        out_row: Any,
        left: Any,
        ones: Any,
    ) -> None:
        """As ``requantize_tile``, for weights that have zero points.

        Args:
            builder: of LLVM code.
            rows: how many, up to ``most_rows_with_ones``.
            x: as there, like all that is not named below.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            sign: see there.
            w: see there.
            columns: as there, and behind the scales the zero points (int32).
            prefetch: see there.
            prefetch_step: see there.
            zero_point: see there.
            out_sign: see there.
            out: see there.
            out_row: see there.
            left: see there.
            ones: address of four bytes for each step of each line: 1 for what belongs to the window, 0 for what does not.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, sign if is_int8 else None, w, prefetch, prefetch_step, ones)
        target = Target(zero_point, out_sign, out, out_row, left)
        _requantize(builder, rows, (most_rows_with_ones(vectors), vectors), given, columns, target)

    return requantize_zero_points_tile


def requantize_add_tile_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 19)
    def requantize_add_tile(
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
        zero_point: Any,
        out_sign: Any,
        out: Any,
        out_row: Any,
        left: Any,
        addend: Any,
        addend_sign: Any,
        addition: Any,
    ) -> None:
        """As ``requantize_tile``, with an 8-bit tensor added to the rounded result; zero point and sign are the sum's.

        Args:
            builder: of LLVM code.
            rows: as there, like all that is not named below.
            x: see there.
            x_row: see there.
            x_line: see there.
            lines: see there.
            steps: see there.
            sign: see there.
            w: see there.
            columns: see there.
            prefetch: see there.
            prefetch_step: see there.
            zero_point: see there.
            out_sign: see there.
            out: see there.
            out_row: see there.
            left: see there.
            addend: address of what is added to the first row; rows are ``out_row`` apart.
            addend_sign: what makes each four of its elements uint8 by exclusive or, or 0.
            addition: address of float32, each in 8 bytes: least and greatest result of the convolution, its scale, zero point (as
                if it were uint8) and scale of the addend, scale of the sum and its inverse.
        """
        given = Operands(0, x, x_row, x_line, lines, steps, sign if is_int8 else None, w, prefetch, prefetch_step)
        target = Target(zero_point, out_sign, out, out_row, left)
        _requantize_add(builder, (rows, vectors), given, columns, target, Addend(addend, addend_sign, addition))

    return requantize_add_tile


def _requantize_add(builder: Any, size: tuple[Any, int], given: Operands, columns: Any, target: Target, addend: Addend) -> None:
    """Tiles of any number of rows, with vectors of columns."""
    rows, vectors = size

    def emit(case: int) -> None:
        sums = emit_sums(builder, given._replace(rows=case), emit_columns(builder, columns, VI32, vectors))
        scales = emit_columns(builder, advance(builder, columns, 1, constant(_VECTOR_BYTES * vectors)), VF32, vectors)
        # Fused, so that the convolution's own result is neither written nor read again.
        found = emit_added(builder, sums, scales, addend, emit_addition(builder, addend), target)
        emit_write(builder, found, target)

    emit_switch(builder, rows, range(1, most_rows(vectors) + 1), emit)
