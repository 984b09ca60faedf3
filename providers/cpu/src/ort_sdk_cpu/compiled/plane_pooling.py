"""Maximum and mean of the windows of each channel's picture where pictures follow each other: along columns, then along rows.

Arguments: addresses of x, the output, how many numbers count in a window of each row and of each column (float32; 0 for the
maximum), working memory; pictures; two sizes each of the input, the output and the windows; two strides, dilations, and paddings
before; bytes of working memory of a thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32, store_f32_first, write_f32
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.shuffles import even_lanes

__all__ = ["pool_planes"]

_COUNTS, _WORK, _PLANES, _INPUT, _OUTPUT, _KERNEL, _STRIDES, _DILATIONS, _PADS, _WORK_BYTES = 2, 4, 5, 6, 8, 10, 12, 14, 16, 18


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
def _sum_column(record: int, is_mean: int, plane: int, row: int, line: int, count: int) -> None:
    """The rows of an output row's windows made one, behind the padding of the line."""
    height, pitch, step = argument(record, _INPUT), argument(record, _INPUT + 1) * 4, argument(record, _DILATIONS)
    origin = row * argument(record, _STRIDES) - argument(record, _PADS)
    first = 0 if origin >= 0 else (step - 1 - origin) // step
    stop = 0 if origin >= height else min(argument(record, _KERNEL), (height - origin + step - 1) // step)
    target = line + argument(record, _PADS + 1) * 4
    for column in range(0, count, 16):
        found, left = splat_f32(_neutral(is_mean)), count - column
        for tap in range(first, stop):
            place = plane + (origin + tap * step) * pitch + column * 4
            found = _combined(is_mean, found, load_f32(place) if left >= 16 else load_f32_first(place, left))
        store_f32_first(target + column * 4, found, left)


@inner
def _write_row(record: int, is_mean: int, row: int, line: int, out: int) -> None:
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
            found = divide(found, splat_f32(read_f32(argument(record, _COUNTS) + row * 4)))
            found = divide(found, load_f32_first(argument(record, _COUNTS + 1) + column * 4, left))
        store_f32_first(out + column * 4, found, left)


@inner
def _write_numbers(record: int, is_mean: int, row: int, line: int, out: int) -> None:
    """Windows of larger strides along a line, one by one."""
    stride, step = argument(record, _STRIDES + 1), argument(record, _DILATIONS + 1) * 4
    for column in range(argument(record, _OUTPUT + 1)):
        found = _neutral(is_mean)
        for tap in range(argument(record, _KERNEL + 1)):
            found = _combined_numbers(is_mean, found, read_f32(line + column * stride * 4 + tap * step))
        if is_mean:
            rows, columns = read_f32(argument(record, _COUNTS) + row * 4), read_f32(argument(record, _COUNTS + 1) + column * 4)
            found = found / rows / columns
        write_f32(out + column * 4, found)


@task
def pool_planes(record: int, part: int, parts: int) -> None:
    """The mean if there are counts, else the maximum; minus infinity of windows that lie outside."""
    height, width = argument(record, _INPUT), argument(record, _INPUT + 1)
    rows, columns = argument(record, _OUTPUT), argument(record, _OUTPUT + 1)
    is_mean, before, stride = int(argument(record, _COUNTS) != 0), argument(record, _PADS + 1), argument(record, _STRIDES + 1)
    extent = (columns - 1) * stride + (argument(record, _KERNEL + 1) - 1) * argument(record, _DILATIONS + 1) + 1
    line, work_bytes = argument(record, _WORK) + part * argument(record, _WORK_BYTES), argument(record, _WORK_BYTES)
    for place in range(0, work_bytes, 64):
        store_f32(line + place, splat_f32(_neutral(is_mean)))
    count = max(0, min(width, extent - before))
    lines = argument(record, _PLANES) * rows
    for index in range(lines * part // parts, lines * (part + 1) // parts):
        row = index % rows
        _sum_column(record, is_mean, argument(record, 0) + index // rows * height * width * 4, row, line, count)
        out = argument(record, 1) + index * columns * 4
        if stride <= 2:
            _write_row(record, is_mean, row, line, out)
        else:
            _write_numbers(record, is_mean, row, line, out)
