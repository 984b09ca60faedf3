"""Tiles of a product of 8-bit integers, kept in registers over a whole loop along K.

A tile has rows of activations, uint8 or int8 where they lie, and the columns of a panel of the weight, int8: 16 for each of up
to four vectors. For each step of four along K, the panel has these vectors, in each lane the four weights of a column. What
belongs to columns, such as scales, lies in as many vectors in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.int8_dot import emit_products
from ort_sdk_cpu.simd.ir_builder import constant, emit_loop, emit_prefetch, moved, opaque
from ort_sdk_cpu.simd.memory import emit_load, emit_store, emit_store_first, splat
from ort_sdk_cpu.simd.vector_types import I32, LANES, VF32, VI32

__all__ = [
    "PANEL",
    "ROWS",
    "UNIT_ROWS",
    "Operands",
    "emit_columns",
    "emit_store_columns",
    "emit_sums",
    "less_zero_points",
    "most_rows",
    "most_unit_rows",
]

PANEL = 64
"""Most columns of a panel."""
ROWS = 6 if instruction_set() >= InstructionSet.AVX512 else 2
"""Most rows of a tile with all columns."""
UNIT_ROWS = 5 if instruction_set() >= InstructionSet.AVX512 else ROWS
"""The same of a tile that sums up what it multiplies, too."""
_VECTORS = PANEL // LANES
_VECTOR_BYTES = 4 * LANES
_ROWS_OF_POINTER = 3


def most_rows(vectors: int) -> int:
    """Of a tile of some vectors of columns: as many sums as there are registers, but no more than hide how long a sum takes."""
    return min(ROWS * _VECTORS // vectors, 2 * ROWS)


def most_unit_rows(vectors: int) -> int:
    """The same of a tile that sums up what it multiplies, too."""
    return min(UNIT_ROWS * (_VECTORS + 1) // (vectors + 1), 2 * ROWS)


class Operands(NamedTuple):
    """What is multiplied: LLVM values, distances in bytes."""

    rows: int
    x: Any
    x_row: Any
    """From row to row."""
    x_line: Any
    """From line to line of a row."""
    lines: Any
    steps: Any
    """Steps of four numbers in a line."""
    flip: Any
    """What is turned over in each four numbers, so that they are uint8; None if they are that: it takes as long as to multiply by
    one vector."""
    w: Any
    soon: Any
    """Address that is asked for in the first step."""
    soon_step: Any
    """How far on in each step."""
    units: Any = None
    """Four weights for each step of each line, the same for all columns: a fifth vector of each row has the sum of the products
    with them in every lane."""


def emit_columns(builder: Any, address: Any, llvm: Any, vectors: int = _VECTORS) -> list[Any]:
    """LLVM code of a load of one number for each column."""
    return [emit_load(builder, moved(builder, address, vector, constant(_VECTOR_BYTES)), llvm) for vector in range(vectors)]


def emit_store_columns(builder: Any, address: Any, values: list[Any], left: Any) -> None:
    """LLVM code of a store of four vectors of 32-bit numbers, of which ``left`` columns are there."""
    places = [moved(builder, address, vector, constant(_VECTOR_BYTES)) for vector in range(_VECTORS)]
    with builder.if_else(builder.icmp_signed(">=", left, constant(PANEL))) as (whole, part):
        with whole:
            for place, value in zip(places, values, strict=True):
                emit_store(builder, place, value)
        with part:
            for vector, (place, value) in enumerate(zip(places, values, strict=True)):
                count = builder.sub(left, constant(vector * LANES))
                emit_store_first(builder, place, value, count, "v16f32" if value.type == VF32 else "v16i32")


def emit_sums(builder: Any, given: Operands, start: list[Any]) -> list[list[Any]]:
    """LLVM code of sums of products: for each row, vectors of int32, which begin with ``start``, and the units' if any."""
    flips = None if given.flip is None else splat(builder, builder.trunc(given.flip, I32))
    lines = [moved(builder, given.x, row, given.x_row) for row in range(0, given.rows, _ROWS_OF_POINTER)]
    begin = [*start, ir.Constant(VI32, None)] if given.units is not None else start
    weighted, count = [constant(0) if given.units is None else given.units, given.w, given.soon], len(lines)
    pointers = len(weighted)
    first = pointers + count

    def step(_index: Any, values: list[Any]) -> list[Any]:
        units, w, soon, *rest = values
        x, sums = [opaque(builder, place) for place in rest[:count]], rest[count:]
        emit_prefetch(builder, soon)
        weights = emit_columns(builder, w, VI32, len(start))
        if given.units is not None:
            weights.append(splat(builder, emit_load(builder, units, I32)))
        found: list[Any] = []
        for row in range(given.rows):
            place = moved(builder, x[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, given.x_row)
            value = splat(builder, emit_load(builder, place, I32))
            if flips is not None:
                value = builder.xor(value, flips)
            for weight in weights:
                found.append(emit_products(builder, sums[len(found)], value, weight))
        step_bytes = constant(_VECTOR_BYTES * len(start))
        moved_on = [builder.add(units, constant(4)), builder.add(w, step_bytes), builder.add(soon, given.soon_step)]
        return [*moved_on, *(builder.add(place, constant(4)) for place in x), *found]

    def line(_index: Any, values: list[Any]) -> list[Any]:
        starts = values[pointers:first]
        after = emit_loop(builder, values, given.steps, step)
        return [*after[:pointers], *(builder.add(place, given.x_line) for place in starts), *after[first:]]

    found = emit_loop(builder, [*weighted, *lines, *begin * given.rows], given.lines, line)[first:]
    return [found[row * len(begin) : (row + 1) * len(begin)] for row in range(given.rows)]


def less_zero_points(builder: Any, row: list[Any], zero_points: list[Any]) -> list[Any]:
    """LLVM code of a row's sums of products with weights less their columns' zero points; the units' sums are its last vector."""
    *sums, total = row
    return [builder.sub(value, builder.mul(zero, total)) for value, zero in zip(sums, zero_points, strict=True)]
