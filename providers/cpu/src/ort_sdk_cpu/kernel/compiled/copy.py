"""Elements of 4 bytes, and bytes and pairs of them, copied between arrays whose axes lie in any order.

All tasks take the same arguments: addresses of the target and the source; sizes of five axes; bytes between elements along them
in the target, and in the source.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task, task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.bytes import load_bytes_first, store_bytes_first
from ort_sdk_cpu.simd.memory import (
    emit_load,
    emit_load_first,
    emit_store,
    load_f32_first,
    load_i32,
    read_f32,
    read_u8,
    store_f32_first,
    store_i32,
    write_f32,
    write_i8,
)
from ort_sdk_cpu.simd.shuffles import emit_interleave, emit_transpose_quarters, row_address
from ort_sdk_cpu.simd.transpose import emit_store_columns_first, transpose_elements
from ort_sdk_cpu.simd.vector_types import I32, LANES, VI32, operation

__all__ = [
    "copy_byte_rows",
    "copy_elements",
    "copy_rows",
    "copy_transposed",
    "four_bytes",
    "four_words",
    "three_bytes",
    "three_words",
    "transpose_bytes",
    "transpose_pairs",
]

_SIZES, _TARGET, _SOURCE = 2, 7, 12
_PIECE = 4096
"""Elements of a row that a thread takes at a time."""


def _narrow_transposition(itemsize: int) -> Any:
    """``transpose_elements`` for elements of one or two bytes, which are 4 while they are in registers."""
    narrow, suffix = ir.VectorType(ir.IntType(8 * itemsize), LANES), f"v16i{8 * itemsize}"

    def transpose(builder: Any, address: Any, stride: Any, rows: Any, count: Any, target: Any, step: Any) -> None:
        places = [row_address(builder, address, stride, row, rows) for row in range(LANES)]
        loaded = [builder.zext(emit_load_first(builder, place, count, narrow, suffix), VI32) for place in places]
        groups = [emit_interleave(builder, loaded[start : start + 4], 4) for start in range(0, LANES, 4)]
        columns = [emit_transpose_quarters(builder, [group[lane] for group in groups]) for lane in range(4)]
        found = [builder.trunc(columns[lane % 4][lane // 4], narrow) for lane in range(LANES)]
        emit_store_columns_first(builder, found, rows, count, target, step, suffix)

    transpose.__name__ += f"_{8 * itemsize}_bits"
    return operation(types.none, *[types.intp] * 6)(transpose)


@inner
def _places(record: int, unit: int) -> tuple[int, int]:
    """Addresses in the target and in the source along the first three axes."""
    second, third = argument(record, _SIZES + 1), argument(record, _SIZES + 2)
    first, index, last = unit // third // second, unit // third % second, unit % third
    target = first * argument(record, _TARGET) + index * argument(record, _TARGET + 1) + last * argument(record, _TARGET + 2)
    source = first * argument(record, _SOURCE) + index * argument(record, _SOURCE + 1) + last * argument(record, _SOURCE + 2)
    return argument(record, 0) + target, argument(record, 1) + source


@inner
def _copy_row(target: int, source: int, count: int) -> None:
    whole = count // 16 * 64
    for place in range(0, whole, 64):
        store_i32(target + place, load_i32(source + place))
    rest = count % 16
    if rest:
        store_f32_first(target + whole, load_f32_first(source + whole, rest), rest)


@inner
def _copy_bytes(target: int, source: int, count: int) -> None:
    for place in range(0, count, 64):
        store_bytes_first(target + place, load_bytes_first(source + place, count - place), count - place)


def _row_task(name: str, copy_row: Any) -> Task:
    """Elements of the last axis lie next to each other in both."""

    def copied(record: int, part: int, parts: int) -> None:
        rows, width = argument(record, _SIZES + 3), argument(record, _SIZES + 4)
        lines = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * rows
        line, stop = lines * part // parts, lines * (part + 1) // parts
        to_step, from_step = argument(record, _TARGET + 3), argument(record, _SOURCE + 3)
        while line < stop:
            target, source = _places(record, line // rows)
            first = line % rows
            last = min(rows, first + stop - line)
            for row in range(first, last):
                copy_row(target + row * to_step, source + row * from_step, width)
            line += last - first

    copied.__name__ = name
    return task(copied)


copy_rows, copy_byte_rows = _row_task("copy_rows", _copy_row), _row_task("copy_byte_rows", _copy_bytes)


def _transposing_task(name: str, transpose: Any, itemsize: int) -> Task:
    """Elements of the last axis lie next to each other in the target, those of the last but one in the source."""

    def transposed(record: int, part: int, parts: int) -> None:
        rows, width = argument(record, _SIZES + 3), argument(record, _SIZES + 4)
        to_step, from_step = argument(record, _TARGET + 3), argument(record, _SOURCE + 4)
        groups = (rows + 15) // 16
        units = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * groups
        for unit in range(units * part // parts, units * (part + 1) // parts):
            target, source = _places(record, unit // groups)
            row = unit % groups * 16
            for column in range(0, width, 16):
                place, to = source + column * from_step + row * itemsize, target + row * to_step + column * itemsize
                transpose(place, from_step, width - column, rows - row, to, to_step)

    transposed.__name__ = name
    return task(transposed)


copy_transposed = _transposing_task("copy_transposed", transpose_elements, 4)
transpose_bytes = _transposing_task("transpose_bytes", _narrow_transposition(1), 1)
transpose_pairs = _transposing_task("transpose_pairs", _narrow_transposition(2), 2)


@task
def copy_elements(record: int, part: int, parts: int) -> None:
    """One after the other."""
    rows, width = argument(record, _SIZES + 3), argument(record, _SIZES + 4)
    lines = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * rows
    line, stop = lines * part // parts, lines * (part + 1) // parts
    to_row, from_row = argument(record, _TARGET + 3), argument(record, _SOURCE + 3)
    to_step, from_step = argument(record, _TARGET + 4), argument(record, _SOURCE + 4)
    while line < stop:
        target, source = _places(record, line // rows)
        first = line % rows
        last = min(rows, first + stop - line)
        for row in range(first, last):
            for index in range(width):
                write_f32(target + row * to_row + index * to_step, read_f32(source + row * from_row + index * from_step))
        line += last - first


def _apart_task(name: str, channels: int, itemsize: int, copy: Any) -> Task:
    """Elements of the last axis are some channels apart in the source, where those of the last but one lie next to each other."""
    positions = 64 // itemsize
    pixels = ir.VectorType(ir.IntType(8 * itemsize), channels * positions)

    def take_apart(builder: Any, source: Any, target: Any, step: Any) -> None:
        whole = emit_load(builder, source, pixels)
        for channel in range(channels):
            lanes = ir.Constant(ir.VectorType(I32, positions), list(range(channel, channels * positions, channels)))
            place = builder.add(target, builder.mul(step, ir.Constant(step.type, channel)))
            emit_store(builder, place, builder.shuffle_vector(whole, whole, lanes))

    take_apart.__name__ += f"_{name}"
    taken = operation(types.none, *[types.intp] * 3)(take_apart)

    def apart(record: int, part: int, parts: int) -> None:
        width, to_step = argument(record, _SIZES + 4), argument(record, _TARGET + 3)
        pieces = (width + _PIECE - 1) // _PIECE
        units = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * pieces
        for unit in range(units * part // parts, units * (part + 1) // parts):
            target, source = _places(record, unit // pieces)
            column = unit % pieces * _PIECE
            stop = min(width, column + _PIECE)
            while column + positions <= stop:
                taken(source + column * channels * itemsize, target + column * itemsize, to_step)
                column += positions
            for place in range(column, stop):
                for channel in range(channels):
                    copy(target + place * itemsize + channel * to_step, source + (place * channels + channel) * itemsize)

    apart.__name__ = name
    return task(apart)


@inner
def _copy_byte(target: int, source: int) -> None:
    write_i8(target, read_u8(source))


@inner
def _copy_word(target: int, source: int) -> None:
    write_f32(target, read_f32(source))


three_bytes, four_bytes = _apart_task("three_bytes", 3, 1, _copy_byte), _apart_task("four_bytes", 4, 1, _copy_byte)
three_words, four_words = _apart_task("three_words", 3, 4, _copy_word), _apart_task("four_words", 4, 4, _copy_word)
