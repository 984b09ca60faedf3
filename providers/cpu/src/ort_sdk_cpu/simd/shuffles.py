"""Shuffles: permutations of lanes, and the transposes and lookups that consist of them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .memory import emit_load_masked, emit_store
from .vector_types import I32, LANES, VF32, VI32, call, f32x16, i32x16, lanewise, operation

__all__ = [
    "clamped_row_address",
    "emit_interleave",
    "emit_lane_sums",
    "emit_lookup",
    "emit_transpose",
    "emit_transpose_quarters",
    "even_bytes",
    "even_lanes",
    "interleave_high",
    "interleave_low",
    "lookup",
    "odd_bytes",
    "odd_lanes",
    "transpose_rows",
]

_QUARTER = 4
"""Lanes of 128 bits: shuffles within them are cheaper than across."""
_HALF = 8
"""Lanes of 256 bits."""


def _shuffle(builder: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


@lanewise(2)
def even_lanes(builder: Any, x: Any, y: Any) -> Any:
    """x0 x2 ... x14 y0 y2 ... y14."""
    return _shuffle(builder, x, y, list(range(0, 2 * LANES, 2)))


@lanewise(2)
def odd_lanes(builder: Any, x: Any, y: Any) -> Any:
    """x1 x3 ... x15 y1 y3 ... y15."""
    return _shuffle(builder, x, y, list(range(1, 2 * LANES, 2)))


def _every_other_byte(builder: Any, x: Any, y: Any, start: int) -> Any:
    count = 4 * LANES
    llvm = ir.VectorType(ir.IntType(8), count)
    lanes = list(range(start, 2 * count, 2))
    return builder.bitcast(_shuffle(builder, builder.bitcast(x, llvm), builder.bitcast(y, llvm), lanes), VI32)


@operation(i32x16, i32x16, i32x16)
def even_bytes(builder: Any, x: Any, y: Any) -> Any:
    """Bytes 0, 2, ... 62 of x, then of y."""
    return _every_other_byte(builder, x, y, 0)


@operation(i32x16, i32x16, i32x16)
def odd_bytes(builder: Any, x: Any, y: Any) -> Any:
    """Bytes 1, 3, ... 63 of x, then of y."""
    return _every_other_byte(builder, x, y, 1)


@lanewise(2)
def interleave_low(builder: Any, x: Any, y: Any) -> Any:
    """x0 y0 x1 y1 ... x7 y7."""
    return _shuffle(builder, x, y, [lane for unit in range(_HALF) for lane in (unit, LANES + unit)])


@lanewise(2)
def interleave_high(builder: Any, x: Any, y: Any) -> Any:
    """x8 y8 ... x15 y15."""
    return _shuffle(builder, x, y, [lane for unit in range(_HALF, LANES) for lane in (unit, LANES + unit)])


def _pairs(vectors: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(vectors[::2], vectors[1::2], strict=True))


def _quarters(numbers: list[int]) -> list[int]:
    return [_QUARTER * number + lane for number in numbers for lane in range(_QUARTER)]


def emit_transpose_quarters(builder: Any, vectors: list[Any]) -> list[Any]:
    """LLVM code of the transpose of four vectors as a 4x4 matrix of 128-bit quarters."""
    even, odd = _quarters([0, 2, 4, 6]), _quarters([1, 3, 5, 7])
    first, second = ([_shuffle(builder, x, y, lanes) for x, y in _pairs(vectors)] for lanes in (even, odd))
    return [_shuffle(builder, x, y, lanes) for lanes in (even, odd) for x, y in (first, second)]


def _within_quarters(builder: Any, x: Any, y: Any, size: int, start: int) -> Any:
    """Interleave the low (start 0) or high (start 1) halves of each 16 bytes of x and y, in units of ``size`` bytes."""
    units = 16 // size
    first = [quarter * units + start * units // 2 + unit for quarter in range(4) for unit in range(units // 2)]
    lanes = [lane for unit in first for lane in (unit, 4 * units + unit)]
    llvm = ir.VectorType(ir.IntType(8 * size), 4 * units)
    return builder.bitcast(_shuffle(builder, builder.bitcast(x, llvm), builder.bitcast(y, llvm), lanes), VI32)


def emit_interleave(builder: Any, vectors: list[Any], size: int) -> list[Any]:
    """LLVM code that interleaves units of ``size`` bytes of four vectors within each 128-bit quarter.

    Returns:
        Four vectors, the i-th with the i-th four units of each quarter.
    """
    pairs = [_within_quarters(builder, x, y, size, half) for half in (0, 1) for x, y in _pairs(vectors)]
    return [_within_quarters(builder, x, y, 2 * size, half) for x, y in _pairs(pairs) for half in (0, 1)]


def emit_lane_sums(builder: Any, vectors: list[Any]) -> Any:
    """LLVM code of a vector with the sums of the lanes of each of 16 vectors of float32."""
    for size in (4, 8):
        halves = [[_within_quarters(builder, x, y, size, half) for half in (0, 1)] for x, y in _pairs(vectors)]
        vectors = [builder.fadd(*[builder.bitcast(half, VF32) for half in pair]) for pair in halves]
    first, second, third, fourth = emit_transpose_quarters(builder, vectors)
    return builder.fadd(builder.fadd(first, second), builder.fadd(third, fourth))


def clamped_row_address(builder: Any, address: Any, stride: Any, row: int, rows: Any) -> Any:
    """LLVM code of the address of a row, clamped to the last of ``rows``."""
    index, last = ir.Constant(rows.type, row), builder.sub(rows, ir.Constant(rows.type, 1))
    return builder.add(address, builder.mul(stride, builder.select(builder.icmp_signed("<", index, rows), index, last)))


@operation(types.none, types.intp, types.intp, types.intp, types.intp, types.intp)
def transpose_rows(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any) -> None:
    """Write the transpose of up to 16 rows of up to 16 4-byte elements.

    Args:
        builder: of LLVM code.
        address: of the first row.
        stride: bytes from row to row.
        rows: number of rows, at least one; the last is repeated up to 16.
        count: elements of a row; missing ones are zeros.
        target: address of 16 vectors, one for each column.
    """
    for index, vector in enumerate(emit_transpose(builder, address, stride, rows, count)):
        emit_store(builder, builder.add(target, ir.Constant(target.type, 64 * index)), vector)


def emit_transpose(builder: Any, address: Any, stride: Any, rows: Any, count: Any) -> list[Any]:
    """LLVM code of ``transpose_rows`` without the stores; returns the columns."""
    addresses = [clamped_row_address(builder, address, stride, row, rows) for row in range(LANES)]
    loaded = [emit_load_masked(builder, each, count, VI32, "v16i32") for each in addresses]
    groups = [emit_interleave(builder, loaded[start : start + 4], 4) for start in range(0, LANES, 4)]
    columns = [emit_transpose_quarters(builder, [group[lane] for group in groups]) for lane in range(4)]
    return [columns[lane % 4][lane // 4] for lane in range(LANES)]


@operation(f32x16, f32x16, i32x16)
def lookup(builder: Any, table: Any, index: Any) -> Any:
    """For each lane, the table's lane whose number is the low four bits of the index."""
    return emit_lookup(builder, table, index)


def emit_lookup(builder: Any, table: Any, index: Any) -> Any:
    """LLVM code of ``lookup``."""
    if instruction_set() >= InstructionSet.AVX512:
        return call(builder, "llvm.x86.avx512.permvar.sf.512", VF32, table, index)
    masked = builder.and_(index, ir.Constant(VI32, [LANES - 1] * LANES))
    if instruction_set() >= InstructionSet.AVX2:
        return _lookup_avx2(builder, table, masked)
    value = ir.Constant(VF32, ir.Undefined)
    for lane in range(LANES):
        number = builder.extract_element(masked, ir.Constant(I32, lane))
        value = builder.insert_element(value, builder.extract_element(table, number), ir.Constant(I32, lane))
    return value


def _lookup_avx2(builder: Any, table: Any, index: Any) -> Any:
    """Look both halves of the table up by vpermps, whose index has three bits, and select by the fourth."""
    low, high = (list(range(start, start + _HALF)) for start in (0, _HALF))
    tables = [_shuffle(builder, table, table, lanes) for lanes in (low, high)]
    halves = []
    for lanes in (low, high):
        numbers = _shuffle(builder, index, index, lanes)
        found = [call(builder, "llvm.x86.avx2.permps", half.type, half, numbers) for half in tables]
        is_low = builder.icmp_unsigned("<", numbers, ir.Constant(numbers.type, [_HALF] * _HALF))
        halves.append(builder.select(is_low, *found))
    return _shuffle(builder, halves[0], halves[1], low + high)
