"""Pictures whose rows and columns are some of another's: Resize that takes the nearest pixel.

All tasks take the same arguments: addresses of x, the output, and of what row and what column each of the output is (int32);
pictures; rows and columns of x, and of the output; bytes of a pixel; how often each column of x follows, 0 if not equally often.
"""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.bytes import load_bytes_first, store_bytes_first
from ort_sdk_cpu.simd.memory import load_f32_first, read_f32, read_i32, read_u8, store_f32_first, write_f32, write_i8
from ort_sdk_cpu.simd.shuffles import interleave_high, interleave_low

__all__ = ["nearest_bytes", "nearest_pixels", "nearest_words"]

_BYTE, _WORD, _PIXEL = 1, 4, 0
"""What a pixel is; anything else is copied byte by byte."""


@inner
def _copy(target: int, source: int, count: int) -> None:
    for place in range(0, count, 64):
        store_bytes_first(target + place, load_bytes_first(source + place, count - place), count - place)


@inner
def _double(target: int, source: int, columns: int) -> None:
    """Each word twice, for ``columns`` words of the target."""
    for column in range(0, columns, 32):
        found = load_f32_first(source + column * 2, (columns - column + 1) // 2)
        store_f32_first(target + column * 4, interleave_low(found, found), columns - column)
        if column + 16 < columns:
            store_f32_first(target + column * 4 + 64, interleave_high(found, found), columns - column - 16)


@inner
def _spread(record: int, kind: int, target: int, source: int) -> None:
    """A row of the output."""
    table, columns = argument(record, 3), argument(record, 8)
    if kind == _WORD:
        if argument(record, 10) == 2:
            _double(target, source, columns)
            return
        for column in range(columns):
            write_f32(target + column * 4, read_f32(source + read_i32(table + column * 4) * 4))
    elif kind == _BYTE:
        for column in range(columns):
            write_i8(target + column, read_u8(source + read_i32(table + column * 4)))
    else:
        size = argument(record, 9)
        for column in range(columns):
            _copy(target + column * size, source + read_i32(table + column * 4) * size, size)


@inner
def _nearest(record: int, part: int, parts: int, kind: int) -> None:
    x, out, table, size = argument(record, 0), argument(record, 1), argument(record, 2), argument(record, 9)
    height, pitch = argument(record, 5), argument(record, 6) * size
    rows, line = argument(record, 7), argument(record, 8) * size
    lines = argument(record, 4) * rows
    first = lines * part // parts
    for index in range(first, lines * (part + 1) // parts):
        picture, row = index // rows, index % rows
        source = read_i32(table + row * 4)
        target = out + index * line
        if index > first and row and read_i32(table + row * 4 - 4) == source:
            _copy(target, target - line, line)
        else:
            _spread(record, kind, target, x + (picture * height + source) * pitch)


@task
def nearest_words(record: int, part: int, parts: int) -> None:
    """Pixels of 4 bytes."""
    _nearest(record, part, parts, _WORD)


@task
def nearest_bytes(record: int, part: int, parts: int) -> None:
    """Pixels of one byte."""
    _nearest(record, part, parts, _BYTE)


@task
def nearest_pixels(record: int, part: int, parts: int) -> None:
    """Pixels of any number of bytes, as those of pictures with channels last."""
    _nearest(record, part, parts, _PIXEL)
