"""The register tile of GEMMs of 8-bit integers: sums stay in registers over the whole loop along K.

A tile has rows of activations, uint8 or int8 as they are in memory, and the columns of a panel of the weight, int8: 16 for each
of up to four vectors. For each step of four along K, the panel has these vectors, in each lane the four weights of a column: the
order of VNNI's operands. What belongs to columns, such as scales, is in as many vectors in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.simd.int8 import emit_dot_u8_i8
from ort_sdk_cpu.simd.ir_builder import advance, constant, emit_loop, emit_prefetch, opaque
from ort_sdk_cpu.simd.memory import emit_load, emit_store, emit_store_masked, splat
from ort_sdk_cpu.simd.vector_types import I32, LANES, VF32, VI32

__all__ = [
    "PANEL",
    "ROWS",
    "ROWS_WITH_ONES",
    "Operands",
    "emit_columns",
    "emit_store_columns",
    "emit_subtract_zero_points",
    "emit_sums",
    "most_rows",
    "most_rows_with_ones",
]

# Four vectors of columns for one broadcast of x: each load of weights serves all rows, each broadcast four multiplications.
PANEL = 64
"""Most columns of a panel."""
# 6 x 4 sums, 4 weights and a broadcast are 29 of AVX-512's 32 registers. With AVX2 each vector is two of 16 registers.
ROWS = 6 if instruction_set() >= InstructionSet.AVX512 else 2
"""Most rows of a tile with all columns."""
# A fifth vector of sums for each row: 5 x 5 sums, 5 weights and a broadcast are 31.
ROWS_WITH_ONES = 5 if instruction_set() >= InstructionSet.AVX512 else ROWS
"""The same of a tile that sums its rows, too."""
_VECTORS = PANEL // LANES
_VECTOR_BYTES = 4 * LANES
# An address has a base and an index of 1, 2, 4 or 8 times a distance: one pointer reaches three rows without an addition.
_ROWS_OF_POINTER = 3


def most_rows(vectors: int) -> int:
    """Of a tile of some vectors of columns: as many sums as there are registers, but no more than hide how long a sum takes."""
    return min(ROWS * _VECTORS // vectors, 2 * ROWS)


def most_rows_with_ones(vectors: int) -> int:
    """The same of a tile that sums its rows, too."""
    return min(ROWS_WITH_ONES * (_VECTORS + 1) // (vectors + 1), 2 * ROWS)


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
    """Steps of four elements in a line."""
    sign: Any
    """What makes each four elements uint8 by exclusive or; None for uint8: it takes as long as multiplying by one vector."""
    w: Any
    prefetch: Any
    """Address that is prefetched in the first step."""
    prefetch_step: Any
    """How far on in each step."""
    ones: Any = None
    """Address of four weights for each step of each line, the same for all columns: a fifth vector of each row has the sum of the
    products with them in every lane."""


def emit_columns(builder: Any, address: Any, llvm: Any, vectors: int = _VECTORS) -> list[Any]:
    """LLVM code of a load of one number for each column."""
    return [emit_load(builder, advance(builder, address, vector, constant(_VECTOR_BYTES)), llvm) for vector in range(vectors)]


def emit_store_columns(builder: Any, address: Any, values: list[Any], left: Any) -> None:
    """LLVM code of a store of four vectors of 32-bit elements, of which ``left`` columns are there."""
    addresses = [advance(builder, address, vector, constant(_VECTOR_BYTES)) for vector in range(_VECTORS)]
    with builder.if_else(builder.icmp_signed(">=", left, constant(PANEL))) as (whole, part):
        with whole:
            for target, value in zip(addresses, values, strict=True):
                emit_store(builder, target, value)
        with part:
            for vector, (target, value) in enumerate(zip(addresses, values, strict=True)):
                count = builder.sub(left, constant(vector * LANES))
                emit_store_masked(builder, target, value, count, "v16f32" if value.type == VF32 else "v16i32")


def emit_sums(builder: Any, given: Operands, start: list[Any]) -> list[list[Any]]:
    """LLVM code of sums of products: for each row, vectors of int32, beginning with ``start``, and its sum if there are ones."""
    signs = None if given.sign is None else splat(builder, builder.trunc(given.sign, I32))
    lines = [advance(builder, given.x, row, given.x_row) for row in range(0, given.rows, _ROWS_OF_POINTER)]
    begin = [*start, ir.Constant(VI32, None)] if given.ones is not None else start
    weighted, count = [constant(0) if given.ones is None else given.ones, given.w, given.prefetch], len(lines)
    pointers = len(weighted)
    first = pointers + count

    def step(_index: Any, values: list[Any]) -> list[Any]:
        ones, w, prefetch, *rest = values
        # Opaque: LLVM would derive the addresses of rows from each other, and keep one for each row.
        x, sums = [opaque(builder, pointer) for pointer in rest[:count]], rest[count:]
        emit_prefetch(builder, prefetch)
        weights = emit_columns(builder, w, VI32, len(start))
        if given.ones is not None:
            weights.append(splat(builder, emit_load(builder, ones, I32)))
        found: list[Any] = []
        for row in range(given.rows):
            address = advance(builder, x[row // _ROWS_OF_POINTER], row % _ROWS_OF_POINTER, given.x_row)
            value = splat(builder, emit_load(builder, address, I32))
            if signs is not None:
                value = builder.xor(value, signs)
            for weight in weights:
                found.append(emit_dot_u8_i8(builder, sums[len(found)], value, weight))
        step_bytes = constant(_VECTOR_BYTES * len(start))
        moved_on = [builder.add(ones, constant(4)), builder.add(w, step_bytes), builder.add(prefetch, given.prefetch_step)]
        return [*moved_on, *(builder.add(pointer, constant(4)) for pointer in x), *found]

    def line(_index: Any, values: list[Any]) -> list[Any]:
        starts = values[pointers:first]
        after = emit_loop(builder, values, given.steps, step)
        return [*after[:pointers], *(builder.add(pointer, given.x_line) for pointer in starts), *after[first:]]

    found = emit_loop(builder, [*weighted, *lines, *begin * given.rows], given.lines, line)[first:]
    return [found[row * len(begin) : (row + 1) * len(begin)] for row in range(given.rows)]


def emit_subtract_zero_points(builder: Any, row: list[Any], zero_points: list[Any]) -> list[Any]:
    """LLVM code of a row's sums of products with weights less their columns' zero points; its last vector is the row's sum."""
    *sums, total = row
    return [builder.sub(value, builder.mul(zero, total)) for value, zero in zip(sums, zero_points, strict=True)]
