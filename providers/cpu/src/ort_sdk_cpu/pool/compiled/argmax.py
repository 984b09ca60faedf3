"""Maximum of the windows of each channel's picture, and where it is.

Arguments: addresses of x, the output and the places (int64); pictures; two sizes each of the input, the output and the windows;
two strides, dilations, and paddings before; what a row and a column count in a place.
"""

from __future__ import annotations

import math

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import read_f32, write_f32, write_i64

__all__ = ["pool_with_places"]

_PLANES, _INPUT, _OUTPUT, _KERNEL, _STRIDES, _DILATIONS, _PADS, _COUNTS = 3, 4, 6, 8, 10, 12, 14, 16


@inner
def _taps(origin: int, size: int, count: int, dilation: int) -> tuple[int, int]:
    """First and last but one tap within the input."""
    first = 0 if origin >= 0 else (-origin + dilation - 1) // dilation
    return first, 0 if origin >= size else min(count, (size - origin + dilation - 1) // dilation)


@task
def pool_with_places(record: int, part: int, parts: int) -> None:
    """The first of several that are alike; NaN is passed over."""
    height, width = argument(record, _INPUT), argument(record, _INPUT + 1)
    rows, columns = argument(record, _OUTPUT), argument(record, _OUTPUT + 1)
    down, right = argument(record, _DILATIONS), argument(record, _DILATIONS + 1)
    taps_down, taps_right = argument(record, _KERNEL), argument(record, _KERNEL + 1)
    lines = argument(record, _PLANES) * rows
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        plane, row = line // rows, line % rows
        x = argument(record, 0) + plane * height * width * 4
        top = row * argument(record, _STRIDES) - argument(record, _PADS)
        first_row, stop_row = _taps(top, height, taps_down, down)
        for column in range(columns):
            left = column * argument(record, _STRIDES + 1) - argument(record, _PADS + 1)
            first_column, stop_column = _taps(left, width, taps_right, right)
            best, found_row, found_column, is_first = np.float32(-np.inf), 0, 0, True
            for tap_row in range(first_row, stop_row):
                line_at = x + ((top + tap_row * down) * width + left) * 4
                for tap_column in range(first_column, stop_column):
                    value = read_f32(line_at + tap_column * right * 4)
                    if is_first or value > best or math.isnan(best):
                        best, found_row, found_column, is_first = value, tap_row, tap_column, False
            place = line * columns + column
            write_f32(argument(record, 1) + place * 4, best)
            own = (top + found_row * down) * argument(record, _COUNTS) + (left + found_column * right) * argument(
                record, _COUNTS + 1
            )
            write_i64(argument(record, 2) + place * 8, plane * height * width + own)
