"""Transposed convolutions into a few channels: products of pixels and windows, added up where windows overlap.

Vectors are of neighbours in a row of the input, so that no lane is empty however few channels the result has. Numbers of the last
rows are kept for as long as windows reach: each result is the sum of what lies at its place in them, and is written once.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.conv.arguments.transposed_col2im import TransposedCol2im
from ort_sdk_cpu.gemm.microkernels.sgemm import COLUMNS, ROWS, spread_tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arithmetic import add, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32, store_f32_first, write_f32
from ort_sdk_cpu.simd.shuffles import interleave_high, interleave_low, transpose_rows

__all__ = ["transposed_col2im"]

_FLOAT = 4
_VECTOR = 64
_LANES = 16
_BLOCK = 32
"""Pixels of a tile."""
_PANEL_ROW = _BLOCK * _FLOAT
_TILE = COLUMNS * _VECTOR
_PAIR = 2


@inner
def _pack_row_major(args: TransposedCol2im, pixels: int, count: int, panel: int) -> None:
    """Copy pixels of a plane per channel; zeros stand for those missing."""
    step = args.x_channel
    for channel in range(args.channels):
        source, target = pixels + channel * step, panel + channel * _PANEL_ROW
        store_f32(target, load_f32_first(source, count))
        store_f32(target + _VECTOR, load_f32_first(source + _VECTOR, count - _LANES))


@inner
def _pack_channels_last(args: TransposedCol2im, pixels: int, count: int, panel: int, turned: int) -> None:
    """Copy pixels with channels beside each other."""
    channels, step = args.channels, args.x_pixel
    for half in range(2):
        left = count - half * _LANES
        for channel in range(0, channels, _LANES):
            target = panel + channel * _PANEL_ROW + half * _VECTOR
            if left > 0:
                place = pixels + half * _LANES * step + channel * _FLOAT
                transpose_rows(place, step, min(left, _LANES), min(channels - channel, _LANES), turned)
                for lane in range(_LANES):
                    store_f32(target + lane * _PANEL_ROW, load_f32_first(turned + lane * _VECTOR, left))
            else:
                for lane in range(_LANES):
                    store_f32(target + lane * _PANEL_ROW, zero_f32())


@inner
def _multiply(args: TransposedCol2im, pixels: int, count: int, panel: int, turned: int, target: int) -> None:
    """All windows' numbers of some neighbours of a row, and behind them zeros for as many as make the last tile full.

    Args:
        args: of the task.
        pixels: address of the first one.
        count: how many.
        panel: memory for as many as a tile has.
        turned: memory for 16 vectors.
        target: of the first number of the first one's window.
    """
    taps, pitch = args.outputs * args.taps_down * args.taps_right, args.pitch
    parts = (taps + ROWS - 1) // ROWS
    for first in range(0, count, _BLOCK):
        place, left = pixels + first * args.x_pixel, count - first
        if args.x_pixel == _FLOAT:
            _pack_row_major(args, place, left, panel)
        else:
            _pack_channels_last(args, place, left, panel, turned)
        for part in range(parts):
            tap = taps * part // parts
            rows, weights = taps * (part + 1) // parts - tap, args.weights + tap * _FLOAT
            found = target + tap * pitch + first * _FLOAT
            for offset in range(0, _PANEL_ROW, _TILE):
                source, channels = panel + offset, args.channels
                spread_tile(rows, source, _PANEL_ROW, weights, _FLOAT, taps * _FLOAT, channels, found + offset, pitch, 1)
    if count > 0:
        # What is no number times a missing pixel is none, either.
        for behind in range(target + count * _FLOAT, target + count * _FLOAT + taps * pitch, pitch):
            store_f32(behind, zero_f32())
            store_f32(behind + _VECTOR, zero_f32())


@inner
def _add_rows(
    args: TransposedCol2im, output: int, numbers: int, step: int, line: int, right: int, count: int, target: int
) -> None:
    """Sums of one place between the steps of a row.

    Args:
        args: of the task.
        output: number of the channel.
        numbers: address of the rows that are kept, of their first pixel.
        step: number of the row of steps.
        line: place of the result's row between steps.
        right: place of the results between steps in the row.
        count: steps.
        target: of sums of whole vectors of steps.
    """
    rows, columns, down, across = args.taps_down, args.taps_right, args.step_down, args.step_right
    height, pitch, kept, bias = args.height, args.pitch, args.kept, args.bias
    lowest, highest = line + args.top, right + args.left
    start = splat_f32(read_f32(bias + output * _FLOAT) if bias else np.float32(0))
    for column in range(0, count * _FLOAT, _VECTOR):
        store_f32(target + column, start)
    row = step + lowest // down
    for tap in range(lowest % down, rows, down):
        if 0 <= row < height:
            window = (row % kept * args.outputs + output) * rows + tap
            place = numbers + (highest // across - args.before) * _FLOAT
            for other in range(highest % across, columns, across):
                source = place + (window * columns + other) * pitch
                for column in range(0, count * _FLOAT, _VECTOR):
                    store_f32(target + column, add(load_f32(target + column), load_f32(source + column)))
                place -= _FLOAT
        row -= 1


@inner
def _join(apart: int, apart_pitch: int, across: int, count: int, target: int) -> None:
    """Write the places between steps in turns.

    Args:
        apart: address of the numbers of the first place.
        apart_pitch: bytes to those of the next.
        across: places between steps.
        count: results.
        target: of the first.
    """
    if across == _PAIR:
        for column in range(0, count, _PAIR * _LANES):
            even, place = apart + column // _PAIR * _FLOAT, target + column * _FLOAT
            first, second = load_f32(even), load_f32(even + apart_pitch)
            store_f32_first(place, interleave_low(first, second), count - column)
            store_f32_first(place + _VECTOR, interleave_high(first, second), count - column - _LANES)
    else:
        for right in range(across):
            source = apart + right * apart_pitch
            for column in range(right, count, across):
                write_f32(target + column * _FLOAT, read_f32(source))
                source += _FLOAT


@inner
def _write(args: TransposedCol2im, sample: int, numbers: int, step: int, begin: int, end: int, apart: int) -> None:
    """The results of a row of steps.

    Args:
        args: of the task.
        sample: its number.
        numbers: address of what is kept.
        step: number of the row.
        begin: column of steps to begin with.
        end: that to end before.
        apart: memory for whole vectors of each place between steps.
    """
    down, across, height, width = args.step_down, args.step_right, args.rows, args.columns
    apart_pitch, count = (end - begin + _LANES - 1) // _LANES * _VECTOR, min(end * across, width) - begin * across
    for line in range(min(down, height - step * down)):
        for output in range(args.outputs):
            row = (sample * args.outputs + output) * height + step * down + line
            target = args.out + (row * width + begin * across) * _FLOAT
            for right in range(across):
                _add_rows(args, output, numbers, step, line, right, end - begin, apart + right * apart_pitch)
            _join(apart, apart_pitch, across, count, target)


@inner
def _block(args: TransposedCol2im, sample: int, top: int, bottom: int, begin: int, end: int, work: int) -> None:
    """The results of some rows and columns of steps.

    Args:
        args: of the task.
        sample: its number.
        top: row of steps to begin with.
        bottom: that to end before.
        begin: column of steps to begin with.
        end: that to end before.
        work: working memory.
    """
    turned = work + (args.channels + _LANES - 1) // _LANES * _LANES * _PANEL_ROW
    taps = args.outputs * args.taps_down * args.taps_right
    numbers, row_bytes, kept = turned + _LANES * _VECTOR, taps * args.pitch, args.kept
    apart, below = numbers + kept * row_bytes, args.above + kept - 1
    for place in range(numbers, apart, _VECTOR):
        store_f32(place, zero_f32())
    reached = begin + args.before
    first = max(0, reached)
    count, shift = min(args.width, end + args.behind) - first, (first - reached) * _FLOAT
    for row in range(top + args.above, bottom + below):
        if 0 <= row < args.height:
            offset = sample * args.x_sample + row * args.x_row + first * args.x_pixel
            target = numbers + row % kept * row_bytes + shift
            _multiply(args, args.x + offset, count, work, turned, target)
        if row - below >= top:
            _write(args, sample, numbers, row - below, begin, end, apart)


@task
def transposed_col2im(args: TransposedCol2im, thread: int, threads: int) -> None:
    """A transposed convolution with bias. Each step makes as many rows and columns of results as windows are apart.

    Arguments: addresses of x, weights (channels, output channels, rows of taps, columns of taps), bias (or 0), the row-major
    output, and working memory; samples, channels, output channels, height, width, rows and columns of taps, rows and columns of
    a step, rows and columns that are left out at the begin, height and width of the output; bytes from sample to sample of x,
    from channel to channel, from row to row, from pixel to pixel; bytes of the numbers that are kept of a row, a multiple of a
    vector's, and how many rows; threads that rows of steps are cut into, and columns of steps; columns of such a thread; bytes of
    working memory of each thread: a panel of 32 pixels with channels in sixteens, 16 vectors, the rows that are kept, and whole
    vectors of steps for each column of a step; first row and column of x that results of a step are made of, counted from the
    step, and the last column.
    """
    down, across, blocks, chunks = args.step_down, args.step_right, args.blocks, args.chunks
    rows, columns = (args.rows + down - 1) // down, (args.columns + across - 1) // across
    samples, work = args.samples, args.work + thread * args.work_bytes
    jobs = blocks * samples * chunks
    for job in range(jobs * thread // threads, jobs * (thread + 1) // threads):
        block, begin = job // (samples * chunks), job % chunks * args.chunk
        top, bottom = rows * block // blocks, rows * (block + 1) // blocks
        _block(args, job // chunks % samples, top, bottom, begin, min(begin + args.chunk, columns), work)
