"""Rows of sums in memory, of products of 8-bit integers, written as 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_if, emit_loop, moved
from ort_sdk_cpu.simd.memory import emit_load
from ort_sdk_cpu.simd.vector_types import LANES, VF32, VI32, operation

from .requantize import AT_ONCE, Addend, Target, emit_addition, emit_steps, emit_summed_steps, emit_write
from .tile import emit_columns, less_zero_points

__all__ = ["quantized_rows_of", "quantized_sum_rows_of", "quantized_unit_rows_of"]

_VECTOR_BYTES = 4 * LANES


def quantized_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 8)
    def quantized_rows(
        builder: Any, rows: Any, sums: Any, columns: Any, zero_point: Any, out_flip: Any, out: Any, out_row: Any, left: Any
    ) -> None:
        """Scale and round to 8 bits.

        Args:
            builder: of LLVM code.
            rows: how many, at least one.
            sums: address of the first row's, which the others follow.
            columns: see ``quantized_tile_of``, like all that follow.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
        """
        scales = _emit_scales(builder, columns, vectors)

        def write(count: int, place: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_flip, builder.add(out, offset), out_row, columns_left)
            emit_write(builder, [emit_steps(builder, row, scales) for row in _emit_rows(builder, place, count, vectors)], target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return quantized_rows


def quantized_unit_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 9)
    def quantized_unit_rows(
        builder: Any,
        rows: Any,
        sums: Any,
        columns: Any,
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        totals: Any,
    ) -> None:
        """As ``quantized_rows``, for weights that have zero points.

        Args:
            builder: of LLVM code.
            rows: as there.
            sums: as there.
            columns: see ``quantized_unit_tile_of``, like all that follow but for ``totals``.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            totals: address of the sum of the first row's numbers in every lane of a vector, which the other rows' follow.
        """
        scales = _emit_scales(builder, columns, vectors)
        zeros = emit_columns(builder, moved(builder, columns, 2, constant(_VECTOR_BYTES * vectors)), VI32, vectors)

        def write(count: int, place: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_flip, builder.add(out, offset), out_row, columns_left)
            first = builder.add(totals, builder.udiv(builder.sub(place, sums), constant(vectors)))
            steps = []
            for row, values in enumerate(_emit_rows(builder, place, count, vectors)):
                total = emit_load(builder, builder.add(first, constant(row * _VECTOR_BYTES)), VI32)
                steps.append(emit_steps(builder, less_zero_points(builder, [*values, total], zeros), scales))
            emit_write(builder, steps, target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return quantized_unit_rows


def quantized_sum_rows_of(vectors: int) -> Any:
    """The operation for panels of some vectors of columns."""

    @operation(types.none, *[types.intp] * 11)
    def quantized_sum_rows(
        builder: Any,
        rows: Any,
        sums: Any,
        columns: Any,
        zero_point: Any,
        out_flip: Any,
        out: Any,
        out_row: Any,
        left: Any,
        addend: Any,
        addend_flip: Any,
        numbers: Any,
    ) -> None:
        """As ``quantized_rows``, with 8-bit numbers added to the rounded result.

        Args:
            builder: of LLVM code.
            rows: as there.
            sums: as there.
            columns: see ``quantized_sum_tile_of``, like all that follow.
            zero_point: see there.
            out_flip: see there.
            out: see there.
            out_row: see there.
            left: see there.
            addend: see there.
            addend_flip: see there.
            numbers: see there.
        """
        scales = _emit_scales(builder, columns, vectors)
        given = Addend(addend, addend_flip, numbers)
        addition = emit_addition(builder, given)

        def write(count: int, place: Any, offset: Any, columns_left: Any) -> None:
            target = Target(zero_point, out_flip, builder.add(out, offset), out_row, columns_left)
            own = given._replace(address=builder.add(addend, offset))
            found = _emit_rows(builder, place, count, vectors)
            emit_write(builder, emit_summed_steps(builder, found, scales, own, addition, target), target)

        _emit_each(builder, rows, sums, (out_row, left), vectors, write)

    return quantized_sum_rows


def _emit_scales(builder: Any, columns: Any, vectors: int) -> list[Any]:
    return emit_columns(builder, moved(builder, columns, 1, constant(_VECTOR_BYTES * vectors)), VF32, vectors)


def _emit_rows(builder: Any, sums: Any, count: int, vectors: int) -> list[list[Any]]:
    """LLVM code of a load of some rows."""
    row_bytes = constant(_VECTOR_BYTES * vectors)
    return [emit_columns(builder, moved(builder, sums, row, row_bytes), VI32, vectors) for row in range(count)]


def _emit_each(
    builder: Any,
    rows: Any,
    sums: Any,
    out: tuple[Any, Any],
    vectors: int,
    write: Callable[[int, Any, Any, Any], None],
) -> None:
    """LLVM code that writes rows, as many at once as are narrowed together.

    Args:
        builder: of LLVM code.
        rows: how many.
        sums: address of the first row's.
        out: bytes from row to row of results, and columns there are.
        vectors: of a row's sums.
        write: gets how many rows, where their sums are, how far on their results, and columns: a constant where none are missing.
    """
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

    with builder.if_else(builder.icmp_signed(">=", left, width)) as (whole, part):
        with whole:
            all_turns(width)
        with part:
            all_turns(left)
