"""MaxPool of channels-last data, with NumPy's meaning of NaN and infinities."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.pool.arguments.nhwc import MaxPoolNhwc
from ort_sdk_cpu.simd.arithmetic import maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32_masked

from .taps import taps_within

__all__ = ["max_pool_nhwc"]


@inline
def _pool_row(args: MaxPoolNhwc, sample: int, depth: int, row: int) -> None:
    """One output row: vectors are along channels, so that strides and dilations cost nothing."""
    channels, columns, pixel = args.channels, args.w.out_size, args.channels * 4
    height, width = args.h.size, args.w.size
    origin_d, origin_h = depth * args.d.stride - args.d.pad, row * args.h.stride - args.h.pad
    first_d, stop_d = taps_within(args.d, origin_d)
    first_h, stop_h = taps_within(args.h, origin_h)
    source = args.x + sample * args.d.size * height * width * pixel
    target = args.out + ((sample * args.d.out_size + depth) * args.h.out_size + row) * columns * pixel
    for column in range(columns):
        # Bounds of rows and planes were worked out once for all windows of the row.
        origin_w = column * args.w.stride - args.w.pad
        first_w, stop_w = taps_within(args.w, origin_w)
        for channel in range(0, channels, 16):
            left = channels - channel
            # Minus infinity, where oneDNN starts from the least finite float32: a window of infinities keeps them.
            found = splat_f32(np.float32(-np.inf))
            for d in range(first_d, stop_d):
                for h in range(first_h, stop_h):
                    line = (origin_d + d * args.d.dilation) * height + origin_h + h * args.h.dilation
                    start = source + (line * width + origin_w) * pixel + channel * 4
                    for w in range(first_w, stop_w):
                        tap = start + w * args.w.dilation * pixel
                        found = maximum_or_nan(found, load_f32(tap) if left >= 16 else load_f32_masked(tap, left))
            store_f32_masked(target + column * pixel + channel * 4, found, left)


@task
def max_pool_nhwc(args: MaxPoolNhwc, thread: int, threads: int) -> None:
    """MaxPool of NDHWC: each thread has a range of output rows. Minus infinity for windows that are outside of the input."""
    depths, rows = args.d.out_size, args.h.out_size
    lines = args.samples * depths * rows
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        _pool_row(args, line // (depths * rows), line // rows % depths, line % rows)
