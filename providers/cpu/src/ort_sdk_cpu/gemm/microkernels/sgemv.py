"""Micro-kernels of GEMV of float32: few rows times a matrix that is read once, by dot products, or as sums of its scaled rows.

The first are for B (N, K), the second (AXPY in BLAS) for B (K, N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.arithmetic import add, zero_f32
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_fma, emit_if, emit_loop, emit_prefetch, emit_switch
from ort_sdk_cpu.simd.memory import (
    LAST_BYTE,
    emit_load,
    emit_load_masked,
    emit_store,
    emit_store_masked,
    load_f32,
    load_f32_masked,
    splat,
    store_f32,
    store_f32_masked,
)
from ort_sdk_cpu.simd.shuffles import emit_lane_sums
from ort_sdk_cpu.simd.vector_types import F32, LANES, VF32, operation

__all__ = ["FEW_ROWS", "SUM_ROWS", "add_row", "add_rows", "add_sums", "all_dots", "rows_added"]

# 4 * 4 sums and 8 operands are 24 of AVX-512's 32 registers.
FEW_ROWS = 4
"""Most rows of A of dot products."""
_DOTS, _DOTS_OF_ONE = 4, LANES
"""Rows of B that are multiplied at a time; with one row of A, whose sums become one vector."""
SUM_ROWS = 3
"""Most rows of A of sums of rows."""

_HOLDS_ONE = instruction_set() >= InstructionSet.AVX512
"""Whether the registers hold the sums of 16 dot products."""

_Address = Any
_FLOAT_BYTES = 4
# Each row read side by side is a stream of its own for the prefetcher, and a load and store of sums less for the others.
_FACTORS, _MOST_ADDED = (24, 8) if instruction_set() >= InstructionSet.AVX512 else (8, 4)
"""Registers for factors; rows of B read side by side."""


def rows_added(rows: int) -> int:
    """Rows of the second operand that are read side by side."""
    return max(1, min(_MOST_ADDED, _FACTORS // rows))


def _add_scaled(
    builder: Any, load: Callable[[_Address], Any], factors: list[list[Any]], targets: list[_Address], b_rows: list[_Address]
) -> list[Any]:
    """Sums at the targets, of which each has factors of its own, with some rows of B added."""
    sums = [load(place) for place in targets]
    for step, row in enumerate(b_rows):
        vector = load(row)
        sums = [emit_fma(builder, own[step], vector, total) for own, total in zip(factors, sums, strict=True)]
    return sums


def _emit_rows(builder: Any, rows: int, steps: int, given: tuple[Any, ...]) -> None:
    b, b_row, x, x_row, columns, target, target_row = given
    b_rows = [advance(builder, b, step, b_row) for step in range(steps)]
    # The rows that the next call reads: lines of them are prefetched as these are read.
    following = [builder.add(advance(builder, row, steps, b_row), constant(LAST_BYTE)) for row in b_rows]
    numbers = [advance(builder, x, row, x_row) for row in range(rows)]
    factors = [
        [splat(builder, emit_load(builder, builder.add(number, constant(step * _FLOAT_BYTES)), F32)) for step in range(steps)]
        for number in numbers
    ]
    targets = [advance(builder, target, row, target_row) for row in range(rows)]

    def body(index: Any, _values: list[Any]) -> list[Any]:
        offset = builder.shl(index, constant(6))
        load = lambda place: emit_load(builder, builder.add(place, offset), VF32)  # noqa: E731
        for place in following:
            emit_prefetch(builder, builder.add(place, offset), into_l2=True)
        found = _add_scaled(builder, load, factors, targets, b_rows)
        for place, value in zip(targets, found, strict=True):
            emit_store(builder, builder.add(place, offset), value)
        return []

    # Vectors without masks as long as there are whole ones.
    whole, left = builder.ashr(columns, constant(4)), builder.and_(columns, constant(15))
    emit_if(builder, builder.icmp_signed(">", whole, constant(0)), [], lambda _none: emit_loop(builder, [], whole, body))

    def last(_none: list[Any]) -> list[Any]:
        offset = builder.shl(whole, constant(6))
        load = lambda place: emit_load_masked(builder, builder.add(place, offset), left, VF32, "v16f32")  # noqa: E731
        found = _add_scaled(builder, load, factors, targets, b_rows)
        for place, value in zip(targets, found, strict=True):
            emit_store_masked(builder, builder.add(place, offset), value, left, "v16f32")
        return []

    emit_if(builder, builder.icmp_signed(">", left, constant(0)), [], last)


_ROWS = operation(types.none, *[types.intp] * 8)


@_ROWS
def add_rows(builder: Any, rows: Any, b: Any, b_row: Any, x: Any, x_row: Any, columns: Any, target: Any, target_row: Any) -> None:
    """Add ``rows_added(rows)`` rows of a matrix, each times a number of x, to each of up to ``SUM_ROWS`` rows.

    Args:
        builder: of LLVM code.
        rows: how many.
        b: address of the matrix's rows.
        b_row: bytes from row to row.
        x: address of the factors of the first row, which follow each other.
        x_row: bytes from row to row.
        columns: how many.
        target: address of the first row that is added to.
        target_row: bytes from row to row.
    """
    given = (b, b_row, x, x_row, columns, target, target_row)
    emit_switch(builder, rows, range(1, SUM_ROWS + 1), lambda case: _emit_rows(builder, case, rows_added(case), given))


@_ROWS
def add_row(builder: Any, rows: Any, b: Any, b_row: Any, x: Any, x_row: Any, columns: Any, target: Any, target_row: Any) -> None:
    """As ``add_rows``, of one row."""
    given = (b, b_row, x, x_row, columns, target, target_row)
    emit_switch(builder, rows, range(1, SUM_ROWS + 1), lambda case: _emit_rows(builder, case, 1, given))


def _dot_step(
    builder: Any, load: Callable[[_Address], Any], b_rows: list[_Address], x_rows: list[_Address], sums: list[Any]
) -> list[Any]:
    weights, numbers = [load(row) for row in b_rows], [load(row) for row in x_rows]
    products = [(number, weight) for number in numbers for weight in weights]
    return [emit_fma(builder, *pair, total) for pair, total in zip(products, sums, strict=True)]


def _emit_whole(builder: Any, sums: list[Any], whole: Any, body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Sums after so many whole vectors, of which short rows have none."""
    is_any = builder.icmp_signed(">", whole, constant(0))
    return emit_if(builder, is_any, sums, lambda values: emit_loop(builder, values, whole, body))


def _emit_dots(builder: Any, b_rows: list[_Address], x_rows: list[_Address], k: Any) -> list[Any]:
    """Vectors whose lanes add up to the dot products of each row of x with each of B."""
    whole, left = builder.ashr(k, constant(4)), builder.and_(k, constant(15))

    def step(offset: Any, load: Callable[[_Address], Any], sums: list[Any]) -> list[Any]:
        return _dot_step(builder, lambda row: load(builder.add(row, offset)), b_rows, x_rows, sums)

    def body(index: Any, sums: list[Any]) -> list[Any]:
        return step(builder.shl(index, constant(6)), lambda place: emit_load(builder, place, VF32), sums)

    def last(sums: list[Any]) -> list[Any]:
        load = lambda place: emit_load_masked(builder, place, left, VF32, "v16f32")  # noqa: E731
        return step(builder.shl(whole, constant(6)), load, sums)

    sums = _emit_whole(builder, [ir.Constant(VF32, None)] * (len(x_rows) * len(b_rows)), whole, body)
    return emit_if(builder, builder.icmp_signed(">", left, constant(0)), sums, last)


@inline
def add_sums(sums: int, sums_row: int, rows: int, columns: int, c: int, c_row: int, is_first: int) -> None:
    """Add sums to the result, or write them there, and make them zero."""
    for row in range(rows):
        for column in range(0, columns, 16):
            place, target, left = sums + row * sums_row + column * 4, c + row * c_row + column * 4, columns - column
            value = load_f32(place)
            store_f32_masked(target, value if is_first else add(value, load_f32_masked(target, left)), left)
            store_f32(place, zero_f32())


@operation(types.none, *[types.intp] * 9)
def _dots(
    builder: Any, rows: Any, b: Any, b_row: Any, b_rows: Any, x: Any, x_row: Any, k: Any, target: Any, target_row: Any
) -> None:
    """Dot products of up to ``FEW_ROWS`` rows with up to ``_DOTS`` rows of B.

    Those are read side by side, from their beginnings to their ends: the processor prefetches them by itself, and beyond their
    ends where rows follow each other.

    Args:
        builder: of LLVM code.
        rows: how many.
        b: address of B's rows.
        b_row: bytes from row to row.
        b_rows: how many of them there are, at least one.
        x: address of the first row.
        x_row: bytes from row to row.
        k: elements of a row.
        target: address of the first row's results, which follow each other.
        target_row: bytes from row to row.
    """
    last = builder.sub(b_rows, constant(1))
    # The last row stands for those missing: its results are written several times, all the same.
    indices = [builder.select(builder.icmp_signed("<", constant(row), last), constant(row), last) for row in range(_DOTS)]
    starts = [builder.add(b, builder.mul(index, b_row)) for index in indices]

    def emit(case: int) -> None:
        sums = _emit_dots(builder, starts, [advance(builder, x, row, x_row) for row in range(case)], k)
        # All sums are added up over their lanes together, in as many shuffles as 16 take.
        found = emit_lane_sums(builder, sums + [ir.Constant(VF32, None)] * (LANES - len(sums)))
        for position in range(len(sums)):
            row, column = divmod(position, _DOTS)
            place = builder.add(advance(builder, target, row, target_row), builder.mul(indices[column], constant(_FLOAT_BYTES)))
            emit_store(builder, place, builder.extract_element(found, ir.Constant(ir.IntType(32), position)))

    emit_switch(builder, rows, range(1, FEW_ROWS + 1), emit)


@operation(types.none, *[types.intp] * 5)
def _dots_of_one(builder: Any, b: Any, b_row: Any, x: Any, k: Any, target: Any) -> None:
    """Dot products of one row with ``_DOTS_OF_ONE`` rows of B, read as by ``_dots``; arguments as for it."""
    sums: list[Any] = []
    for first in range(0, _DOTS_OF_ONE, _DOTS):
        sums += _emit_dots(builder, [advance(builder, b, row, b_row) for row in range(first, first + _DOTS)], [x], k)
    emit_store(builder, target, emit_lane_sums(builder, sums))


@inline
def all_dots(rows: int, b: int, b_row: int, b_rows: int, x: int, x_row: int, k: int, target: int, target_row: int) -> None:
    """Dot products of up to ``FEW_ROWS`` rows with any number of rows of B; arguments as for ``_dots``."""
    done = 0
    # Sixteen rows side by side for one row: 5 to 50 % less time than four where rows do not share sets of the cache.
    if rows == 1 and _HOLDS_ONE:
        done = b_rows // _DOTS_OF_ONE * _DOTS_OF_ONE
        for row in range(0, done, _DOTS_OF_ONE):
            _dots_of_one(b + row * b_row, b_row, x, k, target + row * 4)
    for row in range(done, b_rows, _DOTS):
        _dots(rows, b + row * b_row, b_row, min(_DOTS, b_rows - row), x, x_row, k, target + row * 4, target_row)
