"""Dot products of a row with many rows of another matrix, sixteen at a time, and weighted sums of its rows."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.ir_builder import constant, emit_choice, emit_if, emit_loop, emit_multiply_add, moved, opaque
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.shuffles import emit_lane_sums, row_address
from ort_sdk_cpu.simd.vector_types import F32, LANES, VF32, operation

__all__ = ["SUM_ROWS", "add_weighted_rows", "dots_of_sixteen", "sum_columns"]

_GROUP, _SUMS = (16, 24) if instruction_set() >= InstructionSet.AVX512 else (4, 6)
"""Rows whose sums the registers hold; vectors of sums they hold beside what is added."""
SUM_ROWS = 4
"""Most rows of weighted sums."""
_WIDTHS = (1, 2, 4, 8)
"""Vectors of a row that are summed at a time."""
_ROWS_OF_POINTER = 3
"""Rows whose addresses an instruction computes from one pointer: without a distance, with one, with two."""

_Address = Any


def _emit_group(builder: Any, places: list[_Address], x: _Address, vectors: Any) -> list[Any]:
    """Sums of products, lane by lane, of a row with each of some rows."""

    def body(_index: Any, values: list[Any]) -> list[Any]:
        numbers = emit_load(builder, values[0], VF32)
        rows, sums = values[1 : 1 + len(places)], values[1 + len(places) :]
        pairs = zip(rows, sums, strict=True)
        found = [emit_multiply_add(builder, numbers, emit_load(builder, row, VF32), total) for row, total in pairs]
        return [builder.add(address, constant(64)) for address in values[: 1 + len(places)]] + found

    zeros = [ir.Constant(VF32, None)] * len(places)
    return emit_loop(builder, [x, *places, *zeros], vectors, body)[1 + len(places) :]


def _emit_near_group(builder: Any, b: _Address, b_row: Any, x: _Address, vectors: Any) -> list[Any]:
    """The same of rows that are all there: few pointers reach them all."""
    starts = [moved(builder, b, row, b_row) for row in range(0, _GROUP, _ROWS_OF_POINTER)]

    def body(_index: Any, values: list[Any]) -> list[Any]:
        numbers, pointers = emit_load(builder, values[0], VF32), [opaque(builder, value) for value in values[1 : 1 + len(starts)]]
        found = []
        for row, total in enumerate(values[1 + len(starts) :]):
            place = moved(builder, pointers[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, b_row)
            found.append(emit_multiply_add(builder, numbers, emit_load(builder, place, VF32), total))
        return [builder.add(address, constant(64)) for address in (values[0], *pointers)] + found

    zeros = [ir.Constant(VF32, None)] * _GROUP
    return emit_loop(builder, [x, *starts, *zeros], vectors, body)[1 + len(starts) :]


@operation(types.none, *[types.intp] * 6)
def dots_of_sixteen(builder: Any, x: Any, b: Any, b_row: Any, b_rows: Any, vectors: Any, target: Any) -> None:
    """Dot products of a row with 16 rows.

    Args:
        builder: of LLVM code.
        x: address of the row.
        b: address of the others.
        b_row: bytes from row to row.
        b_rows: how many of them there are, at least one; the last stands for the others.
        vectors: of 16 numbers that a row has, at least one.
        target: where 16 numbers are written.
    """
    with builder.if_else(builder.icmp_signed("<", b_rows, constant(LANES))) as (some, all_there):
        with some:
            sums = []
            for first in range(0, LANES, _GROUP):
                places = [row_address(builder, b, b_row, row, b_rows) for row in range(first, first + _GROUP)]
                sums += _emit_group(builder, places, x, vectors)
            emit_store(builder, target, emit_lane_sums(builder, sums))
        with all_there:
            sums = []
            for first in range(0, LANES, _GROUP):
                sums += _emit_near_group(builder, moved(builder, b, first, b_row), b_row, x, vectors)
            emit_store(builder, target, emit_lane_sums(builder, sums))


def sum_columns(rows: int, columns: int) -> int:
    """Vectors of a row of weighted sums that are made at a time, of so many rows and columns."""
    for width in (8, 4, 2):
        if width <= columns and width * rows <= _SUMS:
            return width
    return 1


def _emit_sums(builder: Any, rows: int, columns: int, given: tuple[Any, ...]) -> None:
    b, b_step, x, x_row, count, target, target_row, is_first = given

    def body(_index: Any, values: list[Any]) -> list[Any]:
        vectors = [emit_load(builder, builder.add(values[0], constant(64 * column)), VF32) for column in range(columns)]
        weights = [splat(builder, emit_load(builder, moved(builder, values[1], row, x_row), F32)) for row in range(rows)]
        products = [(weight, vector) for weight in weights for vector in vectors]
        found = [emit_multiply_add(builder, *pair, total) for pair, total in zip(products, values[2:], strict=True)]
        return [builder.add(values[0], b_step), builder.add(values[1], constant(4)), *found]

    starts = [moved(builder, target, row, target_row) for row in range(rows)]
    places = [builder.add(start, constant(64 * column)) for start in starts for column in range(columns)]
    zeros = [ir.Constant(VF32, None)] * len(places)
    is_added = builder.icmp_signed("==", is_first, constant(0))
    sums = emit_if(builder, is_added, zeros, lambda _zeros: [emit_load(builder, place, VF32) for place in places])
    for place, value in zip(places, emit_loop(builder, [b, x, *sums], count, body)[2:], strict=True):
        emit_store(builder, place, value)


@operation(types.none, *[types.intp] * 10)
def add_weighted_rows(
    builder: Any,
    rows: Any,
    columns: Any,
    b: Any,
    b_step: Any,
    x: Any,
    x_row: Any,
    count: Any,
    target: Any,
    target_row: Any,
    is_first: Any,
) -> None:
    """Add sums of a matrix's rows, each times a weight, to each of some rows, or write them there.

    Args:
        builder: of LLVM code.
        rows: how many, up to ``SUM_ROWS``.
        columns: vectors of a row, what ``sum_columns`` gives.
        b: address of the matrix.
        b_step: bytes from row to row.
        x: address of the weights for the first row, which follow each other.
        x_row: bytes from row to row of them.
        count: rows of the matrix, at least one.
        target: address of the first row.
        target_row: bytes from row to row.
        is_first: whether what is there does not count.
    """
    given = (b, b_step, x, x_row, count, target, target_row, is_first)

    def emit_columns(case: int) -> None:
        widths = [width for width in _WIDTHS if sum_columns(case, width) == width]
        emit_choice(builder, columns, widths, lambda width: _emit_sums(builder, case, width, given))

    emit_choice(builder, rows, range(1, SUM_ROWS + 1), emit_columns)
