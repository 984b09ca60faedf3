"""Rows of sums in memory, of products of 8-bit integers whose zero points and scale are known at run time only, as float32."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_loop
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I8, I32, VI32, operation

from .dequantize_tile import emit_finish, emit_finished
from .tile import PANEL, emit_columns, emit_store_columns

__all__ = ["float_rows", "float_unit_rows", "store_starts_of"]

_SUMS_BYTES = 4 * PANEL
_VECTOR_BYTES = 64


def store_starts_of(*, is_int8: bool) -> Any:
    """The operation for an x of int8 or uint8."""

    @operation(types.none, *[types.intp] * 3)
    def store_starts(builder: Any, columns: Any, numbers: Any, target: Any) -> None:
        """Write what the sums of a panel's columns begin with.

        Args:
            builder: of LLVM code.
            columns: address of the columns' sums of weights.
            numbers: address of the address of x's zero point.
            target: address of the results, int32.
        """
        byte = emit_load(builder, emit_load(builder, numbers, ir.IntType(64)), I8)
        zero_point = (builder.sext if is_int8 else builder.zext)(byte, I32)
        factor = splat(builder, builder.neg(zero_point))
        for vector, value in enumerate(emit_columns(builder, columns, VI32)):
            emit_store(builder, builder.add(target, constant(vector * _VECTOR_BYTES)), builder.mul(value, factor))

    return store_starts


@operation(types.none, *[types.intp] * 7)
def float_rows(builder: Any, rows: Any, sums: Any, columns: Any, numbers: Any, out: Any, out_row: Any, left: Any) -> None:
    """Write sums * scale + bias, within bounds.

    Args:
        builder: of LLVM code.
        rows: how many, at least one.
        sums: address of the first row's, which the others follow.
        columns: see ``float_tile_of``, like all that follow.
        numbers: see there.
        out: see there.
        out_row: see there.
        left: see there.
    """
    _emit_each(builder, rows, (sums, None), (columns, numbers), (out, out_row, left))


@operation(types.none, *[types.intp] * 8)
def float_unit_rows(
    builder: Any, rows: Any, sums: Any, columns: Any, numbers: Any, out: Any, out_row: Any, left: Any, totals: Any
) -> None:
    """As ``float_rows``, for weights that have zero points.

    Args:
        builder: of LLVM code.
        rows: as there, like all that is not named below.
        sums: see there.
        columns: see there.
        numbers: see there.
        out: see there.
        out_row: see there.
        left: see there.
        totals: address of the sum of the first row's numbers in every lane of a vector, which the other rows' follow.
    """
    _emit_each(builder, rows, (sums, totals), (columns, numbers), (out, out_row, left))


def _emit_each(builder: Any, rows: Any, given: tuple[Any, Any], finish_at: tuple[Any, Any], target: tuple[Any, Any, Any]) -> None:
    """LLVM code that writes rows.

    Args:
        builder: of LLVM code.
        rows: how many.
        given: addresses of their sums, and of their totals if weights have zero points.
        finish_at: addresses of what belongs to columns, and of numbers.
        target: address of results, bytes from row to row, columns there are.
    """
    (sums, totals), (out, out_row, left) = given, target
    finish = emit_finish(builder, *finish_at, has_zero_points=totals is not None)

    def write(index: Any, values: list[Any]) -> list[Any]:
        place, to = values
        row = emit_columns(builder, place, VI32)
        if totals is not None:
            row.append(emit_load(builder, builder.add(totals, builder.mul(index, constant(_VECTOR_BYTES))), VI32))
        emit_store_columns(builder, to, emit_finished(builder, row, finish), left)
        return [builder.add(place, constant(_SUMS_BYTES)), builder.add(to, out_row)]

    emit_loop(builder, [sums, out], rows, write)
