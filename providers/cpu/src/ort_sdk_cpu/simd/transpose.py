"""Matrices of packed integers or of 4-byte elements, transposed some rows at a time from one place in memory to another."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .memory import emit_load, emit_store, emit_store_first, splat
from .shuffles import emit_interleave, emit_transpose
from .vector_types import LANES, VI32, operation

__all__ = ["MERGE_ROWS", "emit_store_columns_first", "transpose_elements", "transpose_merged"]

_ADDRESS = types.intp
_GROUP = 4
"""Bytes of a column that lie side by side when rows are merged."""


def _offset(builder: Any, address: Any, stride: Any, count: int) -> Any:
    return builder.add(address, builder.mul(stride, ir.Constant(stride.type, count)))


def _rows(builder: Any, address: Any, stride: Any, rows: Any, flip: Any, count: int) -> list[Any]:
    """The first 64 bytes of some rows, turned over; zeros for those missing."""
    flips, none = splat(builder, flip), ir.Constant(VI32, None)
    none_left = builder.icmp_signed("<=", rows, ir.Constant(rows.type, 0))
    last = builder.select(none_left, ir.Constant(rows.type, 0), builder.sub(rows, ir.Constant(rows.type, 1)))
    found = []
    for row in range(count):
        is_there = builder.icmp_signed(">", rows, ir.Constant(rows.type, row))
        index = builder.select(is_there, ir.Constant(rows.type, row), last)
        value = emit_load(builder, builder.add(address, builder.mul(stride, index)), VI32)
        found.append(builder.select(is_there, builder.xor(value, flips), none))
    return found


def _merged(builder: Any, rows: list[Any], position: int, bits: int) -> Any:
    """Bytes of the elements at a position in the rows' bytes, the first row's lowest."""
    mask = ir.Constant(VI32, [0x01010101 * ((1 << bits) - 1)] * LANES)
    total = ir.Constant(VI32, None)
    for part, row in enumerate(rows):
        codes = builder.and_(builder.lshr(row, ir.Constant(VI32, [position * bits] * LANES)), mask)
        total = builder.or_(total, builder.shl(codes, ir.Constant(VI32, [part * bits] * LANES)))
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
"""``merge(address, stride, rows, flip, target)`` for codes of some bits: 64 bytes of rows of a matrix that is packed along them.

Of the matrix, ``4 * planes`` rows that are ``stride`` bytes apart are read, where ``planes`` codes share a byte; zeros stand for
those missing of ``rows``; the first must be there to be read, even if there is none. ``flip`` is turned over in each 4 bytes.
The codes of a column become 4 bytes; for each position in a byte and ``i`` below 4, a vector of those of columns
``16 * q + 4 * i + u`` (in lane ``4 * q + u``) goes to ``target``, 1024 bytes from one to the next.
"""


@operation(types.none, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS)
def transpose_merged(builder: Any, source: Any, target: Any, step: Any, count: Any) -> None:
    """Write the columns of 16 merged groups of rows, each vector of columns behind the one before.

    Args:
        builder: of LLVM code.
        source: the vectors.
        target: of the first column.
        step: bytes from the place of a column to that of the next.
        count: groups whose 4 bytes are written, from the first on.
    """
    number = ir.Constant(source.type, LANES)
    for lane, vector in enumerate(emit_transpose(builder, source, ir.Constant(source.type, 64), number, number)):
        quarter, unit = divmod(lane, _GROUP)
        emit_store_first(builder, _offset(builder, target, step, LANES * quarter + unit), vector, count, "v16i32")


@operation(types.none, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS)
def transpose_elements(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any, step: Any) -> None:
    """Write the transpose of a part of a matrix of 4-byte elements.

    Args:
        builder: of LLVM code.
        address: of its first row.
        stride: bytes from row to row.
        rows: at least one; of more than 16, the first 16.
        count: elements of a row, at least one; of more than 16, the first 16.
        target: of the first column.
        step: bytes from column to column.
    """
    columns = emit_transpose(builder, address, stride, rows, count)
    emit_store_columns_first(builder, columns, rows, count, target, step, "v16i32")


def emit_store_columns_first(
    builder: Any, columns: list[Any], rows: Any, count: Any, target: Any, step: Any, suffix: str
) -> None:
    """LLVM code of a store of the first columns, of each the first rows; arguments as of ``transpose_elements``."""
    none = ir.Constant(rows.type, 0)
    for lane, vector in enumerate(columns):
        is_there = builder.icmp_signed(">", count, ir.Constant(count.type, lane))
        # Where the system has given no memory yet, to write nothing takes hundreds of times as long.
        place = builder.select(is_there, _offset(builder, target, step, lane), target)
        emit_store_first(builder, place, vector, builder.select(is_there, rows, none), suffix)
