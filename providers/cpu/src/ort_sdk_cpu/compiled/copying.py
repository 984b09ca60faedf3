"""Elements of 4 bytes copied between arrays whose axes lie in any order.

All tasks take the same arguments: addresses of the target and the source; sizes of five axes; bytes between elements along them
in the target, and in the source.
"""

from __future__ import annotations

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.memory import load_f32_first, load_i32, read_f32, store_f32_first, store_i32, write_f32
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.transposition import transpose_elements

__all__ = ["copy_elements", "copy_rows", "copy_transposed"]

_SIZES, _TARGET, _SOURCE = 2, 7, 12


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


@task
def copy_rows(record: int, part: int, parts: int) -> None:
    """Elements of the last axis lie next to each other in both."""
    rows, width = argument(record, _SIZES + 3), argument(record, _SIZES + 4)
    lines = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * rows
    line, stop = lines * part // parts, lines * (part + 1) // parts
    to_step, from_step = argument(record, _TARGET + 3), argument(record, _SOURCE + 3)
    while line < stop:
        target, source = _places(record, line // rows)
        first = line % rows
        last = min(rows, first + stop - line)
        for row in range(first, last):
            _copy_row(target + row * to_step, source + row * from_step, width)
        line += last - first


@task
def copy_transposed(record: int, part: int, parts: int) -> None:
    """Elements of the last axis lie next to each other in the target, those of the last but one in the source."""
    rows, width = argument(record, _SIZES + 3), argument(record, _SIZES + 4)
    to_step, from_step = argument(record, _TARGET + 3), argument(record, _SOURCE + 4)
    groups = (rows + 15) // 16
    units = argument(record, _SIZES) * argument(record, _SIZES + 1) * argument(record, _SIZES + 2) * groups
    for unit in range(units * part // parts, units * (part + 1) // parts):
        target, source = _places(record, unit // groups)
        row = unit % groups * 16
        for column in range(0, width, 16):
            place = source + column * from_step + row * 4
            transpose_elements(place, from_step, width - column, rows - row, target + row * to_step + column * 4, to_step)


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
