"""Micro-kernels of decoding: dot products of a query with 16 keys (QK^T), and weighted sums of rows of values (PV).

Both are GEMVs whose matrix is read in place, once: rows of keys as they are, without a transposed copy.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_fma, emit_if, emit_loop, emit_switch, opaque
from ort_sdk_cpu.simd.memory import emit_load, emit_store, splat
from ort_sdk_cpu.simd.shuffles import clamped_row_address, emit_lane_sums
from ort_sdk_cpu.simd.vector_types import F32, LANES, VF32, operation

__all__ = ["TILE_ROWS", "accumulate_rows", "dot_16_rows", "tile_vectors"]

_GROUP, _TILE_SUMS = (16, 24) if instruction_set() >= InstructionSet.AVX512 else (4, 6)
"""Rows of keys whose sums registers hold, and vectors of sums of a tile of values: of 32 registers, or of 16 of which a vector of
16 lanes takes two. Others are left for what is multiplied."""
TILE_ROWS = 4
"""Most rows of a tile of weighted sums."""
_TILE_WIDTHS = (1, 2, 4, 8)
"""Vectors of a row in a tile."""
_ROWS_OF_POINTER = 3
"""Rows that one pointer reaches: x86 addresses are base + index * scale, so those one and two strides on are free."""

_Address = Any


def _emit_group(builder: Any, addresses: list[_Address], x: _Address, vectors: Any) -> list[Any]:
    """Products, lane by lane, of a row with each of some rows, summed along the row."""

    def body(_index: Any, values: list[Any]) -> list[Any]:
        numbers = emit_load(builder, values[0], VF32)
        rows, sums = values[1 : 1 + len(addresses)], values[1 + len(addresses) :]
        pairs = zip(rows, sums, strict=True)
        found = [emit_fma(builder, numbers, emit_load(builder, row, VF32), total) for row, total in pairs]
        return [builder.add(address, constant(64)) for address in values[: 1 + len(addresses)]] + found

    zeros = [ir.Constant(VF32, None)] * len(addresses)
    return emit_loop(builder, [x, *addresses, *zeros], vectors, body)[1 + len(addresses) :]


def _emit_whole_group(builder: Any, b: _Address, b_row: Any, x: _Address, vectors: Any) -> list[Any]:
    """The same of rows that are all there: sixteen pointers would take all integer registers, and be spilled."""
    starts = [advance(builder, b, row, b_row) for row in range(0, _GROUP, _ROWS_OF_POINTER)]
    # Opaque to LLVM, which would compute all sixteen pointers before the loop, as it cannot see how few registers are left.

    def body(_index: Any, values: list[Any]) -> list[Any]:
        numbers, pointers = emit_load(builder, values[0], VF32), [opaque(builder, value) for value in values[1 : 1 + len(starts)]]
        found = []
        for row, total in enumerate(values[1 + len(starts) :]):
            address = advance(builder, pointers[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, b_row)
            found.append(emit_fma(builder, numbers, emit_load(builder, address, VF32), total))
        return [builder.add(address, constant(64)) for address in (values[0], *pointers)] + found

    zeros = [ir.Constant(VF32, None)] * _GROUP
    return emit_loop(builder, [x, *starts, *zeros], vectors, body)[1 + len(starts) :]


@operation(types.none, *[types.intp] * 6)
def dot_16_rows(builder: Any, x: Any, b: Any, b_row: Any, b_rows: Any, vectors: Any, target: Any) -> None:
    """Dot products of a query with 16 keys.

    Each of the sums is a vector: 16 independent chains of multiply-adds hide their latency. Lanes are added up once, at the end,
    by a transpose of all sums, which takes fewer instructions than 16 horizontal sums.

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
            # Fewer than 16 keys are left: the last one stands for those that are not there, so nothing outside is read.
            for first in range(0, LANES, _GROUP):
                addresses = [clamped_row_address(builder, b, b_row, row, b_rows) for row in range(first, first + _GROUP)]
                sums += _emit_group(builder, addresses, x, vectors)
            emit_store(builder, target, emit_lane_sums(builder, sums))
        with all_there:
            sums = []
            for first in range(0, LANES, _GROUP):
                sums += _emit_whole_group(builder, advance(builder, b, first, b_row), b_row, x, vectors)
            emit_store(builder, target, emit_lane_sums(builder, sums))


def tile_vectors(rows: int, columns: int) -> int:
    """Vectors of a row in a tile, for so many rows and vectors that are left: the widest that registers hold."""
    # Powers of two: code is made for each pair of rows and width, and these are few.
    for width in (8, 4, 2):
        if width <= columns and width * rows <= _TILE_SUMS:
            return width
    return 1


def _emit_tile(builder: Any, rows: int, columns: int, given: tuple[Any, ...]) -> None:
    b, b_step, x, x_row, count, target, target_row, is_first = given

    def body(_index: Any, values: list[Any]) -> list[Any]:
        vectors = [emit_load(builder, builder.add(values[0], constant(64 * column)), VF32) for column in range(columns)]
        # Each weight is broadcast once for all vectors of the tile, and each vector loaded once for all rows.
        weights = [splat(builder, emit_load(builder, advance(builder, values[1], row, x_row), F32)) for row in range(rows)]
        pairs = [(weight, vector) for weight in weights for vector in vectors]
        found = [emit_fma(builder, *pair, total) for pair, total in zip(pairs, values[2:], strict=True)]
        return [builder.add(values[0], b_step), builder.add(values[1], constant(4)), *found]

    starts = [advance(builder, target, row, target_row) for row in range(rows)]
    addresses = [builder.add(start, constant(64 * column)) for start in starts for column in range(columns)]
    zeros = [ir.Constant(VF32, None)] * len(addresses)
    # Sums begin in registers with what is there, or with 0: the tile is stored once.
    is_added = builder.icmp_signed("==", is_first, constant(0))
    sums = emit_if(builder, is_added, zeros, lambda _zeros: [emit_load(builder, address, VF32) for address in addresses])
    for address, value in zip(addresses, emit_loop(builder, [b, x, *sums], count, body)[2:], strict=True):
        emit_store(builder, address, value)


@operation(types.none, *[types.intp] * 10)
def accumulate_rows(
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
    """Add sums of a matrix's rows, each times a weight, to each of some rows, or write them there: C += P V, or C = P V.

    Args:
        builder: of LLVM code.
        rows: how many, up to ``TILE_ROWS``.
        columns: vectors of a row, what ``tile_vectors`` gives.
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
        widths = [width for width in _TILE_WIDTHS if tile_vectors(case, width) == width]
        emit_switch(builder, columns, widths, lambda width: _emit_tile(builder, case, width, given))

    emit_switch(builder, rows, range(1, TILE_ROWS + 1), emit_columns)
