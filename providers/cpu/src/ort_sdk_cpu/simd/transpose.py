"""Rearrangement of matrices and sequences in memory: transposes of 4-byte elements and packed integers, (de)interleaving."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline

from .memory import emit_load, emit_store, emit_store_masked, load_f32, splat, store_f32
from .shuffles import emit_interleave, emit_transpose, even_lanes, interleave_high, interleave_low, odd_lanes
from .vector_types import LANES, VI32, operation

__all__ = [
    "MERGE_ROWS",
    "deinterleave",
    "emit_store_columns_masked",
    "interleave",
    "transpose_elements",
    "transpose_merged",
]

_ADDRESS = types.intp
_GROUP = 4
"""Bytes of a column that are contiguous after rows are merged."""


def _offset(builder: Any, address: Any, stride: Any, count: int) -> Any:
    return builder.add(address, builder.mul(stride, ir.Constant(stride.type, count)))


def _rows(builder: Any, address: Any, stride: Any, rows: Any, flip: Any, count: int) -> list[Any]:
    """The first 64 bytes of ``count`` rows, XORed with ``flip``; zeros for missing rows."""
    flips, none = splat(builder, flip), ir.Constant(VI32, None)
    is_empty = builder.icmp_signed("<=", rows, ir.Constant(rows.type, 0))
    last = builder.select(is_empty, ir.Constant(rows.type, 0), builder.sub(rows, ir.Constant(rows.type, 1)))
    found = []
    for row in range(count):
        is_there = builder.icmp_signed(">", rows, ir.Constant(rows.type, row))
        index = builder.select(is_there, ir.Constant(rows.type, row), last)
        value = emit_load(builder, builder.add(address, builder.mul(stride, index)), VI32)
        found.append(builder.select(is_there, builder.xor(value, flips), none))
    return found


def _merged(builder: Any, rows: list[Any], position: int, bits: int) -> Any:
    """Bytes packed from the codes at one position in the bytes of several rows; the first row's code is the lowest."""
    mask = ir.Constant(VI32, [0x01010101 * ((1 << bits) - 1)] * LANES)
    total = ir.Constant(VI32, None)
    for index, row in enumerate(rows):
        codes = builder.and_(builder.lshr(row, ir.Constant(VI32, [position * bits] * LANES)), mask)
        total = builder.or_(total, builder.shl(codes, ir.Constant(VI32, [index * bits] * LANES)))
    return total


def _merge(bits: int) -> Any:
    planes = 8 // bits

    def merge_rows(builder: Any, address: Any, stride: Any, rows: Any, flip: Any, target: Any) -> None:
        loaded = _rows(builder, address, stride, rows, flip, _GROUP * planes)
        groups = [loaded[start : start + planes] for start in range(0, len(loaded), planes)]
        for position in range(planes):
            merged = [_merged(builder, group, position, bits) for group in groups]
            for index, vector in enumerate(emit_interleave(builder, merged, 1)):
                offset = (position * _GROUP + index) * LANES * 64
                emit_store(builder, builder.add(target, ir.Constant(target.type, offset)), vector)

    merge_rows.__name__ += f"_u{bits}"
    return operation(types.none, _ADDRESS, _ADDRESS, _ADDRESS, types.int32, _ADDRESS)(merge_rows)


MERGE_ROWS = {bits: _merge(bits) for bits in (2, 4, 8)}
"""Bits of a code → ``merge(address, stride, rows, flip, target)``, which repacks 64 bytes of each row along columns.

The codes of the matrix are packed along its rows, ``planes = 8 // bits`` to a byte. ``4 * planes`` rows that are ``stride`` bytes
apart are read; those from ``rows`` on are zeros, but the first must be readable even if ``rows`` is 0. Each 4 bytes are XORed
with ``flip``. The codes of a column become 4 bytes. For each position in a byte and each ``i`` below 4, a vector with those of
column ``16 * q + 4 * i + u`` in lane ``4 * q + u`` is written to ``target``, 1024 bytes from one to the next.
"""


@operation(types.none, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS)
def transpose_merged(builder: Any, source: Any, target: Any, step: Any, count: Any) -> None:
    """Write the columns of 16 groups of merged rows.

    Args:
        builder: of LLVM code.
        source: address of the 16 vectors.
        target: address of the first column.
        step: bytes from column to column.
        count: groups whose 4 bytes are written, from the first on.
    """
    number = ir.Constant(source.type, LANES)
    for lane, vector in enumerate(emit_transpose(builder, source, ir.Constant(source.type, 64), number, number)):
        quarter, unit = divmod(lane, _GROUP)
        emit_store_masked(builder, _offset(builder, target, step, LANES * quarter + unit), vector, count, "v16i32")


@operation(types.none, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS)
def transpose_elements(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any, step: Any) -> None:
    """Write the transpose of a block of a matrix of 4-byte elements.

    Args:
        builder: of LLVM code.
        address: of its first row.
        stride: bytes from row to row.
        rows: at least one; of more than 16, the first 16.
        count: elements of a row, at least one; of more than 16, the first 16.
        target: address of the first column.
        step: bytes from column to column.
    """
    columns = emit_transpose(builder, address, stride, rows, count)
    emit_store_columns_masked(builder, columns, rows, count, target, step, "v16i32")


def emit_store_columns_masked(
    builder: Any, columns: list[Any], rows: Any, count: Any, target: Any, step: Any, suffix: str
) -> None:
    """LLVM code of masked stores of the first ``count`` columns, of each the first ``rows``; as for ``transpose_elements``."""
    none = ir.Constant(rows.type, 0)
    for lane, vector in enumerate(columns):
        is_there = builder.icmp_signed(">", count, ir.Constant(count.type, lane))
        # A masked store without lanes still takes hundreds of times as long on a page that is not mapped yet: it is moved to
        # a column that is written.
        column = builder.select(is_there, _offset(builder, target, step, lane), target)
        emit_store_masked(builder, column, vector, builder.select(is_there, rows, none), suffix)


@inline
def _evens_then_odds(source: int, target: int, vectors: int) -> None:
    half = vectors // 2 * 64
    for index in range(vectors // 2):
        x, y = load_f32(source + index * 128), load_f32(source + index * 128 + 64)
        store_f32(target + index * 64, even_lanes(x, y))
        store_f32(target + half + index * 64, odd_lanes(x, y))


@inline
def _zip_halves(source: int, target: int, vectors: int) -> None:
    half = vectors // 2 * 64
    for index in range(vectors // 2):
        x, y = load_f32(source + index * 64), load_f32(source + half + index * 64)
        store_f32(target + index * 128, interleave_low(x, y))
        store_f32(target + index * 128 + 64, interleave_high(x, y))


@inline
def deinterleave(source: int, target: int, spare: int, vectors: int, streams: int) -> int:
    """Split a sequence of 4-byte elements into ``streams`` sequences: element i goes to stream i % streams.

    Args:
        source: address of the vectors, which are not changed.
        target: address of a buffer of their size.
        spare: address of a second one.
        vectors: number of vectors, a power of two.
        streams: a power of two, at most ``vectors``.

    Returns:
        Address of the result: source if streams is 1, else target or spare.
    """
    while streams > 1:
        _evens_then_odds(source, target, vectors)
        source, target, spare = target, spare, target
        streams //= 2
    return source


@inline
def interleave(source: int, target: int, spare: int, vectors: int, streams: int) -> int:
    """The inverse of ``deinterleave``; arguments and result are the same."""
    while streams > 1:
        _zip_halves(source, target, vectors)
        source, target, spare = target, spare, target
        streams //= 2
    return source
