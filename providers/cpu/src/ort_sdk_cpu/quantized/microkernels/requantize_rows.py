"""Requantization of rows of int32 sums in memory, as AMX leaves them, to 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_if, emit_loop
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .requantize import AT_ONCE, Addend, Target, emit_added, emit_addition, emit_requantized, emit_write
from .tile import emit_columns, emit_subtract_zero_points

__all__ = ["requantize_add_rows_of", "requantize_rows_of", "requantize_zero_points_rows_of"]

_VECTOR_BYTES = 4 * LANES


def requantize_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 8)
    def requantize_rows(
        builder: Any, rows: Any, sums: Any, columns: Any, zero_point: Any, out_sign: Any, out: Any, out_row: Any, left: Any
    ) -> None:
        """Scale and round to 8 bits.

        Args:
            builder: of LLVM code.
            rows: how many, at least one.
            sums: address of the first row's, which the others follow.
            columns: see ``requantize_tile_of``, like all that follow.
            zero_point: see there.
            out_sign: see there.
            out: see there.
            out_row: see there.
            left: see there.
        """
        # Loaded once for all rows: they stay in registers.
        scales = _emit_scales(builder, columns, vectors)

        def write(count: int, address: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_sign, builder.add(out, offset), out_row, columns_left)
            found = [emit_requantized(builder, row, scales) for row in _emit_rows(builder, address, count, vectors)]
            emit_write(builder, found, target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return requantize_rows


def requantize_zero_points_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 9)
    def requantize_zero_points_rows(
        builder: Any,
        rows: Any,
        sums: Any,
        columns: Any,
        zero_point: Any,
        out_sign: Any,
        out: Any,
        out_row: Any,
        left: Any,
        totals: Any,
    ) -> None:
        """As ``requantize_rows``, for weights that have zero points.

        Args:
            builder: of LLVM code.
            rows: as there.
            sums: as there.
            columns: see ``requantize_zero_points_tile_of``, like all that follow but for ``totals``.
            zero_point: see there.
            out_sign: see there.
            out: see there.
            out_row: see there.
            left: see there.
            totals: address of the sum of the first row's elements in every lane of a vector, which the other rows' follow.
        """
        scales = _emit_scales(builder, columns, vectors)
        zeros = emit_columns(builder, advance(builder, columns, 2, constant(_VECTOR_BYTES * vectors)), VI32, vectors)

        def write(count: int, address: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_sign, builder.add(out, offset), out_row, columns_left)
            # A row has one vector of totals where it has some of sums.
            first = builder.add(totals, builder.udiv(builder.sub(address, sums), constant(vectors)))
            found = []
            for row, values in enumerate(_emit_rows(builder, address, count, vectors)):
                total = emit_load(builder, builder.add(first, constant(row * _VECTOR_BYTES)), VI32)
                centered = emit_subtract_zero_points(builder, [*values, total], zeros)
                found.append(emit_requantized(builder, centered, scales))
            emit_write(builder, found, target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return requantize_zero_points_rows


def requantize_add_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 11)
    def requantize_add_rows(
        builder: Any,
        rows: Any,
        sums: Any,
        columns: Any,
        zero_point: Any,
        out_sign: Any,
        out: Any,
        out_row: Any,
        left: Any,
        addend: Any,
        addend_sign: Any,
        addition: Any,
    ) -> None:
        """As ``requantize_rows``, with an 8-bit tensor added to the rounded result.

        Args:
            builder: of LLVM code.
            rows: as there.
            sums: as there.
            columns: see ``requantize_add_tile_of``, like all that follow.
            zero_point: see there.
            out_sign: see there.
            out: see there.
            out_row: see there.
            left: see there.
            addend: see there.
            addend_sign: see there.
            addition: see there.
        """
        scales = _emit_scales(builder, columns, vectors)
        given = Addend(addend, addend_sign, addition)
        scalars = emit_addition(builder, given)

        def write(count: int, address: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_sign, builder.add(out, offset), out_row, columns_left)
            own = given._replace(address=builder.add(addend, offset))
            found = _emit_rows(builder, address, count, vectors)
            emit_write(builder, emit_added(builder, found, scales, own, scalars, target), target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return requantize_add_rows


def _emit_scales(builder: Any, columns: Any, vectors: int) -> list[Any]:
    return emit_columns(builder, advance(builder, columns, 1, constant(_VECTOR_BYTES * vectors)), VF32, vectors)


def _emit_rows(builder: Any, sums: Any, count: int, vectors: int) -> list[list[Any]]:
    """LLVM code of a load of some rows."""
    # Rows of a panel follow each other without gaps: they were stored by tiles as wide as the panel.
    row_bytes = constant(_VECTOR_BYTES * vectors)
    return [emit_columns(builder, advance(builder, sums, row, row_bytes), VI32, vectors) for row in range(count)]


def _emit_each(
    builder: Any,
    rows: Any,
    sums: Any,
    out: tuple[Any, Any],
    vectors: int,
    write: Callable[[int, Any, Any, Any], None],
) -> None:
    """LLVM code that writes rows, as many at a time as are narrowed together.

    Args:
        builder: of LLVM code.
        rows: how many.
        sums: address of the first row's.
        out: bytes from row to row of results, and columns there are.
        vectors: of a row's sums.
        write: gets how many rows, the address of their sums, the offset of their results, and columns: a constant where all are
            there.
    """
    # One narrowing takes four vectors: of panels of one or two, rows are narrowed four or two at a time, and the rest one by one.
    (out_row, left), at_once, width = out, AT_ONCE // vectors, constant(vectors * LANES)

    def turns(count: int, values: list[Any], number: Any, columns: Any) -> list[Any]:
        sums_bytes, out_bytes = constant(count * vectors * _VECTOR_BYTES), builder.mul(out_row, constant(count))

        def turn(_index: Any, values: list[Any]) -> list[Any]:
            write(count, values[0], values[1], columns)
            return [builder.add(values[0], sums_bytes), builder.add(values[1], out_bytes)]

        is_wanted = builder.icmp_signed(">", number, constant(0))
        return emit_if(builder, is_wanted, values, lambda values: emit_loop(builder, values, number, turn))

    def all_turns(columns: Any) -> None:
        values = turns(at_once, [sums, constant(0)], builder.sdiv(rows, constant(at_once)), columns)
        if at_once > 1:
            turns(1, values, builder.srem(rows, constant(at_once)), columns)

    # Two loops: all panels but the last are whole, and their stores need no mask.
    with builder.if_else(builder.icmp_signed(">=", left, width)) as (whole, part):
        with whole:
            all_turns(width)
        with part:
            all_turns(left)
