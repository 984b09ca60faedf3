"""Maximum of windows of channels-last data, with NumPy's meaning of NaN and infinities."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32_first

__all__ = ["max_pool"]


@inner
def _taps(record: int, axis: int, index: int) -> tuple[int, int, int]:
    """(position of the first tap in the input, first and last but one tap within it) of a window along an axis."""
    size, kernel = argument(record, 4 + axis), argument(record, 10 + axis)
    step, dilation, pad = argument(record, 13 + axis), argument(record, 16 + axis), argument(record, 19 + axis)
    origin = index * step - pad
    first = 0 if origin >= 0 else (-origin + dilation - 1) // dilation
    stop = 0 if origin >= size else min(kernel, (size - origin + dilation - 1) // dilation)
    return origin, first, stop


@inner
def _pool_row(record: int, sample: int, depth: int, row: int) -> None:
    channels, rows, columns = argument(record, 3), argument(record, 8), argument(record, 9)
    height, width, pixel = argument(record, 5), argument(record, 6), channels * 4
    origin_d, first_d, stop_d = _taps(record, 0, depth)
    origin_h, first_h, stop_h = _taps(record, 1, row)
    source = argument(record, 0) + sample * argument(record, 4) * height * width * pixel
    target = argument(record, 1) + ((sample * argument(record, 7) + depth) * rows + row) * columns * pixel
    for column in range(columns):
        origin_w, first_w, stop_w = _taps(record, 2, column)
        for channel in range(0, channels, 16):
            left = channels - channel
            found = splat_f32(np.float32(-np.inf))
            for d in range(first_d, stop_d):
                for h in range(first_h, stop_h):
                    line = (origin_d + d * argument(record, 16)) * height + origin_h + h * argument(record, 17)
                    place = source + (line * width + origin_w) * pixel + channel * 4
                    for w in range(first_w, stop_w):
                        tap = place + w * argument(record, 18) * pixel
                        found = maximum_or_nan(found, load_f32(tap) if left >= 16 else load_f32_first(tap, left))
            store_f32_first(target + column * pixel + channel * 4, found, left)


@task
def max_pool(record: int, part: int, parts: int) -> None:
    """Maximum of windows; minus infinity for those that lie outside.

    Arguments: addresses of x and the output; samples, channels; three sizes each of the input, the output and the windows; three
    strides, dilations, and paddings before.
    """
    depths, rows = argument(record, 7), argument(record, 8)
    lines = argument(record, 2) * depths * rows
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        _pool_row(record, line // (depths * rows), line // rows % depths, line % rows)
