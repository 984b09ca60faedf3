"""Blocks of GEMMs of 8-bit integers by a processor's matrix unit (AMX): up to 32 rows with a panel, as sums in memory.

Rows and panels are those of ``tile``, in the order that tiles are loaded in. A line's steps are taken some at a time, as many as
divide them and a tile holds, so that no tile reaches beyond a line.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import types

from ort_sdk_cpu.simd.amx import LEFT, RIGHT, ROW_BYTES, SUMS, TILE_ROWS, emit_load_tile, emit_multiply_tiles, emit_store_tile
from ort_sdk_cpu.simd.ir_builder import constant, emit_if, emit_loop, emit_prefetch
from ort_sdk_cpu.simd.vector_types import operation

__all__ = ["BLOCK_ROWS", "multiply_block_of"]

# Two groups of rows by two vectors of columns: four tiles of sums, two of each operand, all eight that there are. Each tile
# loaded is multiplied twice, as in Intel's optimization manual.
BLOCK_ROWS = 2 * TILE_ROWS
_COLUMNS = 2
"""Vectors of columns that are multiplied at a time."""
_STEP_BYTES = 4
_LINE_BYTES = 64
"""Of a cache."""


class _Block(NamedTuple):
    """What is multiplied: LLVM values, described by ``multiply_block_of``."""

    x: Any
    x_group: Any
    x_row: Any
    x_line: Any
    lines: Any
    chunks: Any
    chunk_steps: Any
    w: Any
    prefetch: Any
    prefetch_step: Any


def _emit_product(
    builder: Any, given: _Block, sizes: tuple[int, int], start: Any, target: tuple[Any, Any], unit: tuple[str, Any]
) -> None:
    """Sums of some groups of rows and vectors of columns, as many columns at a time as the unit has tiles for."""
    (number, vectors), (sums, second), (_, sums_row) = sizes, target, unit
    # Wider panels go over x once per two vectors: x is in the first cache, and tiles of sums are few.
    for first in range(0, vectors, _COLUMNS):
        columns = range(first, min(vectors, first + _COLUMNS))
        tiles = [(group, column) for group in range(number) for column in columns]
        for group, column in tiles:
            # Rows 0 bytes apart: each begins with the same sums.
            address = builder.add(start, constant(column * ROW_BYTES))
            emit_load_tile(builder, _sums_of(group, column), address, constant(0))
        given = given._replace(prefetch=_emit_chunks(builder, given, number, columns, unit))
        for group, column in tiles:
            address = builder.add(sums, constant(column * ROW_BYTES))
            address = builder.add(address, second) if group else address
            emit_store_tile(builder, _sums_of(group, column), address, sums_row)


def multiply_block_of(vectors: int, *, is_int8: bool) -> Any:
    """The operation for rows of int8 or uint8 and panels of some vectors of columns."""
    instruction, sums_row = "tdpbssd" if is_int8 else "tdpbusd", constant(vectors * ROW_BYTES)

    @operation(types.none, *[types.intp] * 14)
    def multiply_block(
        builder: Any,
        groups: Any,
        x: Any,
        x_group: Any,
        x_row: Any,
        x_line: Any,
        lines: Any,
        chunks: Any,
        chunk_steps: Any,
        w: Any,
        start: Any,
        sums: Any,
        second: Any,
        prefetch: Any,
        prefetch_step: Any,
    ) -> None:
        """Write sums of one or two groups of rows, for which the unit is configured; the second group's follow the first one's.

        Args:
            builder: of LLVM code.
            groups: of rows.
            x: address of the first row.
            x_group: bytes from the first group's first row to the second's.
            x_row: bytes from row to row.
            x_line: bytes from line to line of a row: pieces that do not follow each other.
            lines: how many, at least one.
            chunks: of steps in a line, at least one.
            chunk_steps: steps of four elements in a chunk, as the unit is configured.
            w: address of the panel.
            start: address of the columns' sums to begin with (int32).
            sums: address of the results.
            second: bytes from the first group's results to the second's.
            prefetch: address of what is prefetched into the second cache meanwhile.
            prefetch_step: cache lines of it for each chunk.
        """
        given = _Block(x, x_group, x_row, x_line, lines, chunks, chunk_steps, w, prefetch, prefetch_step)

        def multiply(number: int, _values: list[Any]) -> list[Any]:
            _emit_product(builder, given, (number, vectors), start, (sums, second), (instruction, sums_row))
            return []

        for number in (1, 2):
            emit_if(builder, builder.icmp_signed("==", groups, constant(number)), [], functools.partial(multiply, number))

    return multiply_block


def _sums_of(group: int, column: int) -> int:
    return SUMS[2 * group + column % _COLUMNS]


def _emit_chunks(builder: Any, given: _Block, groups: int, columns: range, kind: tuple[str, Any]) -> Any:
    """LLVM code of all products with some vectors of columns; the instruction, and bytes of a step of the panel.

    Returns:
        The address behind what was prefetched.
    """
    instruction, w_step = kind
    x_chunk, w_chunk = builder.mul(given.chunk_steps, constant(_STEP_BYTES)), builder.mul(given.chunk_steps, w_step)

    def chunk(_index: Any, values: list[Any]) -> list[Any]:
        x, w, prefetch = values
        for column in columns:
            emit_load_tile(builder, RIGHT[column % _COLUMNS], builder.add(w, constant(column * ROW_BYTES)), w_step)
        for group in range(groups):
            address = builder.add(x, given.x_group) if group else x
            emit_load_tile(builder, LEFT[group], address, given.x_row)
            for column in columns:
                operands = LEFT[group], RIGHT[column % _COLUMNS]
                emit_multiply_tiles(builder, instruction, _sums_of(group, column), *operands)
        return [builder.add(x, x_chunk), builder.add(w, w_chunk), _emit_asked(builder, prefetch, given.prefetch_step)]

    def line(_index: Any, values: list[Any]) -> list[Any]:
        x, *rest = values
        return [builder.add(x, given.x_line), *emit_loop(builder, [x, *rest], given.chunks, chunk)[1:]]

    return emit_loop(builder, [given.x, given.w, given.prefetch], given.lines, line)[-1]


def _emit_asked(builder: Any, prefetch: Any, count: Any) -> Any:
    """LLVM code that prefetches cache lines, if any; the address behind them."""

    # Into the second cache: the first one holds x and the panel that is being multiplied.
    def ask(_index: Any, values: list[Any]) -> list[Any]:
        emit_prefetch(builder, values[0], into_l2=True)
        return [builder.add(values[0], constant(_LINE_BYTES))]

    is_wanted = builder.icmp_signed(">", count, constant(0))
    return emit_if(builder, is_wanted, [prefetch], lambda values: emit_loop(builder, values, count, ask))[0]
