"""Maximum and mean of the windows of each channel's picture or film where they follow each other: along columns, then along rows.

Arguments: addresses of x, the output, how many numbers count in a window of each row and of each column (float32; 0 for the
maximum), working memory; pictures, of outputs if there are films; two sizes each of the input, the output and the windows; two
strides, dilations, and paddings before; bytes of a line of working memory, lines of a thread. Films have further ones: the
address of how many numbers count in a window of each picture; along pictures, the sizes of the input, the output and the
windows, the stride, the dilation and the padding before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32, store_f32_first, write_f32
from ort_sdk_cpu.simd.shuffles import even_lanes

__all__ = ["pool_films", "pool_planes"]

_COUNTS, _WORK, _PLANES, _INPUT, _OUTPUT, _KERNEL, _STRIDES, _DILATIONS, _PADS, _LINE_BYTES = 2, 4, 5, 6, 8, 10, 12, 14, 16, 18
_LINES, _FILM_COUNTS, _FILM = 19, 20, 21


@inner
def _combined(is_mean: int, x: Any, y: Any) -> Any:
    return add(x, y) if is_mean else maximum_or_nan(x, y)


@inner
def _combined_numbers(is_mean: int, x: float, y: float) -> float:
    if is_mean:
        return x + y
    return y if y > x or math.isnan(y) else x


@inner
def _neutral(is_mean: int) -> Any:
    return np.float32(0) if is_mean else np.float32(-np.inf)


@inner
def _taps(origin: int, size: int, count: int, dilation: int) -> tuple[int, int]:
    """First and last but one tap within the input."""
    first = 0 if origin >= 0 else (dilation - 1 - origin) // dilation
    if origin + (count - 1) * dilation < size:
        return first, count
    return first, 0 if origin >= size else (size - origin + dilation - 1) // dilation


@inner
def _sum_column(record: int, is_mean: int, plane: int, planes: int, far: int, row: int, line: int, count: int) -> None:
    """The rows of an output row's windows in some pictures made one, behind the padding of the line."""
    height, pitch, dilation = argument(record, _INPUT), argument(record, _INPUT + 1) * 4, argument(record, _DILATIONS)
    origin, step = row * argument(record, _STRIDES) - argument(record, _PADS), dilation * pitch
    first, stop = _taps(origin, height, argument(record, _KERNEL), dilation)
    target = line + argument(record, _PADS + 1) * 4
    for column in range(0, count, 16):
        found, left = splat_f32(_neutral(is_mean)), count - column
        for picture in range(planes):
            start = plane + picture * far + origin * pitch + column * 4
            for tap in range(first, stop):
                place = start + tap * step
                found = _combined(is_mean, found, load_f32(place) if left >= 16 else load_f32_first(place, left))
        if left >= 16:
            store_f32(target + column * 4, found)
        else:
            store_f32_first(target + column * 4, found, left)


@inner
def _write_row(record: int, is_mean: int, counted: float, line: int, out: int) -> None:
    """Windows of strides 1 and 2 along a line, 16 at a time."""
    columns, stride, step = argument(record, _OUTPUT + 1), argument(record, _STRIDES + 1), argument(record, _DILATIONS + 1) * 4
    taps = argument(record, _KERNEL + 1)
    for column in range(0, columns, 16):
        found, left = splat_f32(_neutral(is_mean)), columns - column
        for tap in range(taps):
            place = line + column * stride * 4 + tap * step
            value = load_f32(place) if stride == 1 else even_lanes(load_f32(place), load_f32(place + 64))
            found = _combined(is_mean, found, value)
        if is_mean:
            counts = load_f32_first(argument(record, _COUNTS + 1) + column * 4, left)
            found = divide(divide(found, splat_f32(counted)), counts)
        if left >= 16:
            store_f32(out + column * 4, found)
        else:
            store_f32_first(out + column * 4, found, left)


@inner
def _write_numbers(record: int, is_mean: int, counted: float, line: int, out: int) -> None:
    """Windows of larger strides along a line, one by one."""
    stride, step = argument(record, _STRIDES + 1), argument(record, _DILATIONS + 1) * 4
    for column in range(argument(record, _OUTPUT + 1)):
        found = _neutral(is_mean)
        for tap in range(argument(record, _KERNEL + 1)):
            found = _combined_numbers(is_mean, found, read_f32(line + column * stride * 4 + tap * step))
        if is_mean:
            found = found / counted / read_f32(argument(record, _COUNTS + 1) + column * 4)
        write_f32(out + column * 4, found)


@inner
def _prepare(record: int, is_mean: int, part: int) -> int:
    """A thread's lines, with what counts for nothing around them."""
    size = argument(record, _LINE_BYTES) * argument(record, _LINES)
    work: int = argument(record, _WORK) + part * size
    for place in range(0, size, 64):
        store_f32(work + place, splat_f32(_neutral(is_mean)))
    return work


@inner
def _pool_rows(
    record: int, is_mean: int, plane: int, planes: int, far: int, counted: float, row: int, count: int, work: int, out: int
) -> None:
    """Some rows of an output, all along columns before the first along rows: what was just stored cannot be loaded at once."""
    width, line_bytes = argument(record, _INPUT + 1), argument(record, _LINE_BYTES)
    columns, stride = argument(record, _OUTPUT + 1), argument(record, _STRIDES + 1)
    extent = (columns - 1) * stride + (argument(record, _KERNEL + 1) - 1) * argument(record, _DILATIONS + 1) + 1
    read = max(0, min(width, extent - argument(record, _PADS + 1)))
    for index in range(count):
        _sum_column(record, is_mean, plane, planes, far, row + index, work + index * line_bytes, read)
    for index in range(count):
        line, target = work + index * line_bytes, out + index * columns * 4
        of_row = counted * read_f32(argument(record, _COUNTS) + (row + index) * 4) if is_mean else counted
        if stride <= 2:
            _write_row(record, is_mean, of_row, line, target)
        else:
            _write_numbers(record, is_mean, of_row, line, target)


@task
def pool_planes(record: int, part: int, parts: int) -> None:
    """The mean if there are counts, else the maximum; minus infinity of windows that lie outside."""
    plane_bytes, rows = argument(record, _INPUT) * argument(record, _INPUT + 1) * 4, argument(record, _OUTPUT)
    is_mean, row_bytes = int(argument(record, _COUNTS) != 0), argument(record, _OUTPUT + 1) * 4
    work = _prepare(record, is_mean, part)
    lines = argument(record, _PLANES) * rows
    index, stop = lines * part // parts, lines * (part + 1) // parts
    while index < stop:
        row = index % rows
        count = min(argument(record, _LINES), rows - row, stop - index)
        x, out = argument(record, 0) + index // rows * plane_bytes, argument(record, 1) + index * row_bytes
        _pool_rows(record, is_mean, x, 1, 0, np.float32(1), row, count, work, out)
        index += count


@task
def pool_films(record: int, part: int, parts: int) -> None:
    """The same of films."""
    plane_bytes, rows = argument(record, _INPUT) * argument(record, _INPUT + 1) * 4, argument(record, _OUTPUT)
    is_mean, row_bytes = int(argument(record, _COUNTS) != 0), argument(record, _OUTPUT + 1) * 4
    pictures, step = argument(record, _FILM + 1), argument(record, _FILM + 4)
    work = _prepare(record, is_mean, part)
    lines = argument(record, _PLANES) * rows
    index, stop = lines * part // parts, lines * (part + 1) // parts
    while index < stop:
        plane, row = index // rows, index % rows
        count = min(argument(record, _LINES), rows - row, stop - index)
        film, picture = plane // pictures, plane % pictures
        origin = picture * argument(record, _FILM + 3) - argument(record, _FILM + 5)
        first, last = _taps(origin, argument(record, _FILM), argument(record, _FILM + 2), step)
        counted = read_f32(argument(record, _FILM_COUNTS) + picture * 4) if is_mean else np.float32(1)
        x = argument(record, 0) + (film * argument(record, _FILM) + origin + first * step) * plane_bytes
        out = argument(record, 1) + index * row_bytes
        _pool_rows(record, is_mean, x, last - first, step * plane_bytes, counted, row, count, work, out)
        index += count
