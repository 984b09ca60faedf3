"""MaxPool with Indices of NCHW."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.pool.arguments.argmax import MaxPoolWithIndices
from ort_sdk_cpu.simd.memory import read_f32, write_f32, write_i64

from .taps import taps_within

__all__ = ["max_pool_with_indices"]


@inline
def _pool_window(args: MaxPoolWithIndices, plane: int, top: int, left: int, offset: int) -> None:
    """One window, whose first tap is at (top, left); ``offset`` is of its result among all."""
    width = args.w.size
    first_row, stop_row = taps_within(args.h, top)
    first_column, stop_column = taps_within(args.w, left)
    x = args.x + plane * args.h.size * width * 4
    best, found_row, found_column, is_first = np.float32(-np.inf), 0, 0, True
    for tap_row in range(first_row, stop_row):
        line = x + ((top + tap_row * args.h.dilation) * width + left) * 4
        for tap_column in range(first_column, stop_column):
            value = read_f32(line + tap_column * args.w.dilation * 4)
            # As in ONNX Runtime, NaN loses to any number, and the first of several equal ones wins: no vector instruction
            # compares so, which is why this goes element by element.
            if is_first or value > best or math.isnan(best):
                best, found_row, found_column, is_first = value, tap_row, tap_column, False
    row, column = top + found_row * args.h.dilation, left + found_column * args.w.dilation
    write_f32(args.out + offset * 4, best)
    write_i64(args.indices + offset * 8, plane * args.h.size * width + row * args.row_step + column * args.column_step)


@task
def max_pool_with_indices(args: MaxPoolWithIndices, thread: int, threads: int) -> None:
    """MaxPool with Indices: each thread has a range of output rows. The first of several equal maxima; NaN loses to numbers."""
    rows, columns = args.h.out_size, args.w.out_size
    lines = args.planes * rows
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        top = line % rows * args.h.stride - args.h.pad
        for column in range(columns):
            _pool_window(args, line // rows, top, column * args.w.stride - args.w.pad, line * columns + column)
