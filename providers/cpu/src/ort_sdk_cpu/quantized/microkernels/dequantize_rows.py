"""Dequantization of rows of int32 sums in memory, as AMX leaves them, by a zero point and a scale that come with each run."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.simd.ir_builder import constant, emit_loop
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.vector_types import I8, I32, VI32, operation

from .dequantize_tile import emit_dequantized, emit_epilogue
from .tile import PANEL, emit_columns, emit_store_columns

__all__ = ["dequantize_rows", "dequantize_zero_points_rows", "store_initial_sums_of"]

_SUMS_BYTES = 4 * PANEL
_VECTOR_BYTES = 64


def store_initial_sums_of(*, is_int8: bool) -> Any:
    """The operation for an x of int8 or uint8."""

    @operation(types.none, *[types.intp] * 3)
    def store_initial_sums(builder: Any, columns: Any, dequantization: Any, target: Any) -> None:
        """Write what the sums of a panel's columns begin with.

        Args:
            builder: of LLVM code.
            columns: address of the columns' sums of weights.
            dequantization: address of the address of x's zero point.
            target: address of the results, int32.
        """
        byte = emit_load(builder, emit_load(builder, dequantization, ir.IntType(64)), I8)
        zero_point = (builder.sext if is_int8 else builder.zext)(byte, I32)
        # Sums of (x - zero point) * w are sums of x * w less the zero point times the column's sum of w.
        factor = splat(builder, builder.neg(zero_point))
        for vector, value in enumerate(emit_columns(builder, columns, VI32)):
            emit_store(builder, builder.add(target, constant(vector * _VECTOR_BYTES)), builder.mul(value, factor))

    return store_initial_sums


@operation(types.none, *[types.intp] * 7)
def dequantize_rows(
    builder: Any, rows: Any, sums: Any, columns: Any, dequantization: Any, out: Any, out_row: Any, left: Any
) -> None:
    """Write sums * scale + bias, within bounds.

    Args:
        builder: of LLVM code.
        rows: how many, at least one.
        sums: address of the first row's, which the others follow.
        columns: see ``dequantize_tile_of``, like all that follow.
        dequantization: see there.
        out: see there.
        out_row: see there.
        left: see there.
    """
    _emit_each(builder, rows, (sums, None), (columns, dequantization), (out, out_row, left))


@operation(types.none, *[types.intp] * 8)
def dequantize_zero_points_rows(
    builder: Any, rows: Any, sums: Any, columns: Any, dequantization: Any, out: Any, out_row: Any, left: Any, totals: Any
) -> None:
    """As ``dequantize_rows``, for weights that have zero points.

    Args:
        builder: of LLVM code.
        rows: as there, like all that is not named below.
        sums: see there.
        columns: see there.
        dequantization: see there.
        out: see there.
        out_row: see there.
        left: see there.
        totals: address of the sum of the first row's elements in every lane of a vector, which the other rows' follow.
    """
    _emit_each(builder, rows, (sums, totals), (columns, dequantization), (out, out_row, left))


def _emit_each(
    builder: Any, rows: Any, given: tuple[Any, Any], epilogue_at: tuple[Any, Any], target: tuple[Any, Any, Any]
) -> None:
    """LLVM code that writes rows.

    Args:
        builder: of LLVM code.
        rows: how many.
        given: addresses of their sums, and of their totals if weights have zero points.
        epilogue_at: addresses of what belongs to columns, and of dequantization.
        target: address of results, bytes from row to row, columns there are.
    """
    (sums, totals), (out, out_row, left) = given, target
    # Loaded once for all rows: scales, bias and bounds stay in registers.
    epilogue = emit_epilogue(builder, *epilogue_at, has_zero_points=totals is not None)

    def write(index: Any, values: list[Any]) -> list[Any]:
        address, to = values
        row = emit_columns(builder, address, VI32)
        if totals is not None:
            row.append(emit_load(builder, builder.add(totals, builder.mul(index, constant(_VECTOR_BYTES))), VI32))
        emit_store_columns(builder, to, emit_dequantized(builder, row, epilogue), left)
        return [builder.add(address, constant(_SUMS_BYTES)), builder.add(to, out_row)]

    emit_loop(builder, [sums, out], rows, write)
