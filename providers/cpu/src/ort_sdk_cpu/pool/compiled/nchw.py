"""MaxPool and AveragePool of NCHW and NCDHW as separable reductions: down columns, then along rows.

A window of k by k elements takes 2k operations per result in place of k * k, as both the maximum and the sum are separable. The
lines between both passes are in workspace that stays in the first cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.pool.arguments.nchw import PoolNcdhw, PoolNchw
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, read_f32, store_f32, store_f32_masked, write_f32
from ort_sdk_cpu.simd.shuffles import even_lanes

from .taps import taps_within

__all__ = ["pool_ncdhw", "pool_nchw"]


@inline
def _combined(is_mean: int, x: Any, y: Any) -> Any:
    return add(x, y) if is_mean else maximum_or_nan(x, y)


@inline
def _combined_scalars(is_mean: int, x: float, y: float) -> float:
    if is_mean:
        return x + y
    return y if y > x or math.isnan(y) else x


@inline
def _neutral(is_mean: int) -> Any:
    return np.float32(0) if is_mean else np.float32(-np.inf)


@inline
def _reduce_columns(args: PoolNchw, is_mean: int, plane: int, planes: int, step: int, row: int, line: int, count: int) -> None:
    """The first pass of an output row: its windows' rows in ``planes`` planes, ``step`` bytes apart, as one line.

    The line has room for the padding before its first element.
    """
    # Vectors run along the row, whatever the stride along it: the second pass picks what it needs.
    pitch = args.w.size * 4
    origin, row_step = row * args.h.stride - args.h.pad, args.h.dilation * pitch
    first, stop = taps_within(args.h, origin)
    target = line + args.w.pad * 4
    for column in range(0, count, 16):
        found, left = splat_f32(_neutral(is_mean)), count - column
        for index in range(planes):
            start = plane + index * step + origin * pitch + column * 4
            for tap in range(first, stop):
                source = start + tap * row_step
                found = _combined(is_mean, found, load_f32(source) if left >= 16 else load_f32_masked(source, left))
        if left >= 16:
            store_f32(target + column * 4, found)
        else:
            store_f32_masked(target + column * 4, found, left)


@inline
def _reduce_row(args: PoolNchw, is_mean: int, counted: float, line: int, out: int) -> None:
    """The second pass for strides 1 and 2, 16 windows at a time; ``counted`` is how many rows count in a mean."""
    columns, stride, step = args.w.out_size, args.w.stride, args.w.dilation * 4
    for column in range(0, columns, 16):
        found, left = splat_f32(_neutral(is_mean)), columns - column
        for tap in range(args.w.kernel):
            source = line + column * stride * 4 + tap * step
            # Of stride 2, every second element of two vectors: two loads and a shuffle are faster than a gather.
            value = load_f32(source) if stride == 1 else even_lanes(load_f32(source), load_f32(source + 64))
            found = _combined(is_mean, found, value)
        if is_mean:
            counts = load_f32_masked(args.column_counts + column * 4, left)
            found = divide(divide(found, splat_f32(counted)), counts)
        if left >= 16:
            store_f32(out + column * 4, found)
        else:
            store_f32_masked(out + column * 4, found, left)


@inline
def _reduce_row_scalars(args: PoolNchw, is_mean: int, counted: float, line: int, out: int) -> None:
    """The second pass for larger strides, element by element: most of each vector would be left out."""
    stride, step = args.w.stride, args.w.dilation * 4
    for column in range(args.w.out_size):
        found = _neutral(is_mean)
        for tap in range(args.w.kernel):
            found = _combined_scalars(is_mean, found, read_f32(line + column * stride * 4 + tap * step))
        if is_mean:
            found = found / counted / read_f32(args.column_counts + column * 4)
        write_f32(out + column * 4, found)


@inline
def _prepare(args: PoolNchw, is_mean: int, thread: int) -> int:
    """A thread's lines, filled with the neutral element: padding is never written, and needs no test in the second pass."""
    # Once per thread, not per row: the first pass writes the same range of each line again.
    size = args.line_bytes * args.lines
    workspace: int = args.workspace + thread * size
    for offset in range(0, size, 64):
        store_f32(workspace + offset, splat_f32(_neutral(is_mean)))
    return workspace


@inline
def _pool_rows(
    args: PoolNchw, is_mean: int, plane: int, planes: int, step: int, counted: float, row: int, count: int, lines: int, out: int
) -> None:
    """Some output rows. The first pass does all of them before the second begins: a load right behind a store waits for it."""
    # Columns that no window reads are not reduced.
    extent = (args.w.out_size - 1) * args.w.stride + (args.w.kernel - 1) * args.w.dilation + 1
    read = max(0, min(args.w.size, extent - args.w.pad))
    for index in range(count):
        _reduce_columns(args, is_mean, plane, planes, step, row + index, lines + index * args.line_bytes, read)
    for index in range(count):
        line, target = lines + index * args.line_bytes, out + index * args.w.out_size * 4
        of_row = counted * read_f32(args.row_counts + (row + index) * 4) if is_mean else counted
        if args.w.stride <= 2:
            _reduce_row(args, is_mean, of_row, line, target)
        else:
            _reduce_row_scalars(args, is_mean, of_row, line, target)


@task
def pool_nchw(args: PoolNchw, thread: int, threads: int) -> None:
    """The mean if there are counts, else the maximum: each thread has a range of output rows.

    Minus infinity for maxima of windows that are outside of the input.
    """
    plane_bytes, rows, row_bytes = args.h.size * args.w.size * 4, args.h.out_size, args.w.out_size * 4
    is_mean = int(args.row_counts != 0)
    workspace = _prepare(args, is_mean, thread)
    lines = args.planes * rows
    index, stop = lines * thread // threads, lines * (thread + 1) // threads
    while index < stop:
        # Up to the end of the plane: the rows of a group are of one.
        row = index % rows
        count = min(args.lines, rows - row, stop - index)
        x = args.x + index // rows * plane_bytes
        _pool_rows(args, is_mean, x, 1, 0, np.float32(1), row, count, workspace, args.out + index * row_bytes)
        index += count


@task
def pool_ncdhw(args: PoolNcdhw, thread: int, threads: int) -> None:
    """The same of NCDHW: the first pass goes down the rows of all planes of a window."""
    plane_bytes, rows, row_bytes = args.h.size * args.w.size * 4, args.h.out_size, args.w.out_size * 4
    is_mean, depths, dilation = int(args.row_counts != 0), args.d.out_size, args.d.dilation
    workspace = _prepare(args, is_mean, thread)
    lines = args.planes * rows
    index, stop = lines * thread // threads, lines * (thread + 1) // threads
    while index < stop:
        plane, row = index // rows, index % rows
        count = min(args.lines, rows - row, stop - index)
        volume, depth = plane // depths, plane % depths
        origin = depth * args.d.stride - args.d.pad
        first, last = taps_within(args.d, origin)
        counted = read_f32(args.plane_counts + depth * 4) if is_mean else np.float32(1)
        x = args.x + (volume * args.d.size + origin + first * dilation) * plane_bytes
        out = args.out + index * row_bytes
        _pool_rows(args, is_mean, x, last - first, dilation * plane_bytes, counted, row, count, workspace, out)
        index += count
