"""Convolutions of 3 by 3 taps, step 1, on channels-last data by Winograd's minimal filtering F(2x2, 3x3).

Tiles of 4 by 4 inputs give 2 by 2 outputs: 16 products of each channel take the place of 36 (Lavin and Gray, "Fast Algorithms
for Convolutional Neural Networks"). Weights are transformed once: panels of output channels, in each the 16 matrices
(C, columns of the panel) one behind the other. Sums along C are made of short chains, so that rounding errors stay those of
direct convolutions or below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.winograd import Winograd, WinogradWeights
from ort_sdk_cpu.conv.microkernels.epilogue import finished
from ort_sdk_cpu.gemm.compiled.panels import prefetch_shift
from ort_sdk_cpu.gemm.microkernels.sgemm import COLUMNS, ROWS, tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arithmetic import add, multiply, splat_f32, subtract
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_f32_first
from ort_sdk_cpu.simd.shuffles import transpose_rows
from ort_sdk_cpu.simd.work_stealing import leave_jobs, next_job

__all__ = ["winograd", "winograd_weights"]

_WIDTH = 16 * COLUMNS
"""Output channels of a panel."""
_POSITIONS = 16
"""Products of a channel in a tile."""
_STEPS = 64
"""Most channels summed in one chain."""
_TAPS = 9


@inner
def _patch_row(place: int, pixel: int, first: int, stop: int, left: int) -> Any:
    """Differences along a row of 4 pixels, of which those from ``first`` to ``stop`` are in the image; zeros stand for others."""
    if left >= 16 and first <= 0 and stop >= 4:
        d0, d1 = load_f32(place), load_f32(place + pixel)
        d2, d3 = load_f32(place + 2 * pixel), load_f32(place + 3 * pixel)
    else:
        d0 = load_f32_first(place, left if first <= 0 and stop > 0 else 0)
        d1 = load_f32_first(place + pixel, left if first <= 1 and stop > 1 else 0)
        d2 = load_f32_first(place + 2 * pixel, left if first <= 2 and stop > 2 else 0)
        d3 = load_f32_first(place + 3 * pixel, left if first <= 3 and stop > 3 else 0)
    return subtract(d0, d2), add(d1, d2), subtract(d2, d1), subtract(d1, d3)


@inner
def _store_differences(target: int, row: int, d0: Any, d1: Any, d2: Any, d3: Any) -> None:
    """Differences along a column of 4, ``row`` bytes apart."""
    store_f32(target, subtract(d0, d2))
    store_f32(target + row, add(d1, d2))
    store_f32(target + 2 * row, subtract(d2, d1))
    store_f32(target + 3 * row, subtract(d1, d3))


@inner
def _transform_tile(place: int, pixel: int, line: int, bounds: Any, channels: int, target: int, step: int) -> None:
    """One tile of the input, all channels; ``step`` bytes from position to position."""
    top, bottom, left, right = bounds
    for channel in range(0, channels, 16):
        rest, at, to = channels - channel, place + channel * 4, target + channel * 4
        a0, a1, a2, a3 = _patch_row(at, pixel, left, right, rest if top <= 0 < bottom else 0)
        b0, b1, b2, b3 = _patch_row(at + line, pixel, left, right, rest if top <= 1 < bottom else 0)
        c0, c1, c2, c3 = _patch_row(at + 2 * line, pixel, left, right, rest if top <= 2 < bottom else 0)
        d0, d1, d2, d3 = _patch_row(at + 3 * line, pixel, left, right, rest if top <= 3 < bottom else 0)
        _store_differences(to, 4 * step, a0, b0, c0, d0)
        _store_differences(to + step, 4 * step, a1, b1, c1, d1)
        _store_differences(to + 2 * step, 4 * step, a2, b2, c2, d2)
        _store_differences(to + 3 * step, 4 * step, a3, b3, c3, d3)


@inner
def _place_of(args: Winograd, tile_index: int) -> Any:
    """(sample, row, column) of a tile."""
    rows, columns = args.tile_rows, args.tile_columns
    rest = tile_index // columns
    return rest // rows, rest % rows, tile_index % columns


@inner
def _transform_input(args: Winograd, first: int, count: int, target: int, row: int, step: int) -> None:
    height, width, channels = args.height, args.width, args.channels
    pixel = channels * 4
    line = pixel * width
    for index in range(count):
        sample, tile_row, tile_column = _place_of(args, first + index)
        top, left = 2 * tile_row - args.top, 2 * tile_column - args.left
        place = args.x + (sample * height + top) * line + left * pixel
        bounds = (-top, height - top, -left, width - left)
        _transform_tile(place, pixel, line, bounds, channels, target + index * row, step)


@inner
def _multiply(inputs: int, row: int, step: int, count: int, channels: int, weights: int, sums: int, sums_row: int) -> None:
    """The 16 products of some tiles with one panel of weights."""
    blocks, tiles = (channels + _STEPS - 1) // _STEPS, (count + ROWS - 1) // ROWS
    slowness, panel_row = prefetch_shift(tiles), _WIDTH * 4
    for position in range(_POSITIONS):
        for block in range(blocks):
            start = channels * block // blocks
            steps = channels * (block + 1) // blocks - start
            panel = weights + (position * channels + start) * panel_row
            following = panel + steps * panel_row
            source, target = inputs + position * step + start * 4, sums + position * panel_row
            for index in range(tiles):
                first = count * index // tiles
                height = count * (index + 1) // tiles - first
                soon = following + min(index * (steps >> slowness), steps) * panel_row
                x, y = source + first * row, target + first * sums_row
                tile(height, panel, panel_row, 64, x, row, steps, y, sums_row, int(block == 0), soon, panel_row, slowness)


@inner
def _finish(args: Winograd, offset: int, channel: int, left: int, value: Any) -> None:
    """Bias, addend and activation of 16 channels of a pixel, then into the output."""
    bias = args.bias
    if bias:
        value = add(value, load_f32_first(bias + channel * 4, left))
    store_f32_first(args.out + offset, finished(args, offset, left, value), left)


@inner
def _row_of_sums(place: int) -> Any:
    """Two outputs of a row of 4 positions."""
    m0, m1 = load_f32(place), load_f32(place + _WIDTH * 4)
    m2, m3 = load_f32(place + 2 * _WIDTH * 4), load_f32(place + 3 * _WIDTH * 4)
    return add(m0, add(m1, m2)), subtract(subtract(m1, m2), m3)


@inner
def _transform_output(args: Winograd, first: int, count: int, sums: int, sums_row: int, start: int) -> None:
    outputs, height, width = args.outputs, args.rows, args.columns
    pixel, line = outputs * 4, outputs * 4 * width
    for index in range(count):
        sample, tile_row, tile_column = _place_of(args, first + index)
        has_below, has_right = 2 * tile_row + 1 < height, 2 * tile_column + 1 < width
        corner = (sample * height + 2 * tile_row) * line + 2 * tile_column * pixel
        for lane in range(0, min(_WIDTH, outputs - start), 16):
            place, channel, left = sums + index * sums_row + lane * 4, start + lane, outputs - start - lane
            offset = corner + channel * 4
            a0, a1 = _row_of_sums(place)
            b0, b1 = _row_of_sums(place + 4 * _WIDTH * 4)
            c0, c1 = _row_of_sums(place + 8 * _WIDTH * 4)
            d0, d1 = _row_of_sums(place + 12 * _WIDTH * 4)
            _finish(args, offset, channel, left, add(a0, add(b0, c0)))
            if has_right:
                _finish(args, offset + pixel, channel, left, add(a1, add(b1, c1)))
            if has_below:
                _finish(args, offset + line, channel, left, subtract(subtract(b0, c0), d0))
            if has_below and has_right:
                _finish(args, offset + line + pixel, channel, left, subtract(subtract(b1, c1), d1))


@task
def winograd(args: Winograd, thread: int, threads: int) -> None:
    """A convolution with bias, addend and activation.

    Arguments: addresses of x, weights, bias (or 0), addend (or 0), the output and working memory; samples, height, width,
    channels, output channels, height and width of the output, rows of zeros above, columns of zeros to the left, rows and columns
    of tiles, blocks of tiles, threads of the output channels, bytes of working memory per thread; activation (0: none, 1: bounds,
    2: slope below zero, 3: silu, 4: hard swish) and its two numbers; the address of what is added at last (or 0); whether the
    activation is scaled, factor and shift; 8 words for ``claims``. A job is a block of tiles in a thread of the output channels.
    """
    channels, outputs = args.channels, args.outputs
    tiles, blocks, channel_parts = (
        args.samples * args.tile_rows * args.tile_columns,
        args.blocks,
        args.channel_parts,
    )
    panels, jobs = (outputs + _WIDTH - 1) // _WIDTH, blocks * channel_parts
    at_once = (tiles + blocks - 1) // blocks
    row = (channels + 15) // 16 * 64 + 64
    step, sums_row = at_once * row + 64, (_POSITIONS * _WIDTH + 16) * 4
    inputs = args.work + thread * args.work_bytes
    sums = inputs + _POSITIONS * step
    claims, made = args.jobs.first, -1
    job, tried = next_job(claims, jobs, thread, threads, 0)
    while job >= 0:
        block, channel_part = job // channel_parts, job % channel_parts
        first = tiles * block // blocks
        count = tiles * (block + 1) // blocks - first
        if block != made:
            _transform_input(args, first, count, inputs, row, step)
            made = block
        for panel in range(panels * channel_part // channel_parts, panels * (channel_part + 1) // channel_parts):
            weights = args.weights + panel * _POSITIONS * channels * _WIDTH * 4
            _multiply(inputs, row, step, count, channels, weights, sums, sums_row)
            _transform_output(args, first, count, sums, sums_row, panel * _WIDTH)
        job, tried = next_job(claims, jobs, thread, threads, tried)
    leave_jobs(claims, threads)


@inner
def _filtered(g0: Any, g1: Any, g2: Any) -> Any:
    """Three taps at the four points."""
    half = splat_f32(np.float32(0.5))
    ends, middle = multiply(add(g0, g2), half), multiply(g1, half)
    return g0, add(ends, middle), subtract(ends, middle), g2


@inner
def _store_filtered(target: int, row: int, g0: Any, g1: Any, g2: Any) -> None:
    u0, u1, u2, u3 = _filtered(g0, g1, g2)
    store_f32(target, u0)
    store_f32(target + row, u1)
    store_f32(target + 2 * row, u2)
    store_f32(target + 3 * row, u3)


@inner
def _filter(taps: int, target: int, step: int) -> None:
    """One channel of 16 outputs: vectors of 9 taps to 16 positions, ``step`` bytes apart."""
    a0, a1, a2, a3 = _filtered(load_f32(taps), load_f32(taps + 64), load_f32(taps + 128))
    b0, b1, b2, b3 = _filtered(load_f32(taps + 192), load_f32(taps + 256), load_f32(taps + 320))
    c0, c1, c2, c3 = _filtered(load_f32(taps + 384), load_f32(taps + 448), load_f32(taps + 512))
    _store_filtered(target, 4 * step, a0, b0, c0)
    _store_filtered(target + step, 4 * step, a1, b1, c1)
    _store_filtered(target + 2 * step, 4 * step, a2, b2, c2)
    _store_filtered(target + 3 * step, 4 * step, a3, b3, c3)


@task
def winograd_weights(args: WinogradWeights, thread: int, threads: int) -> None:
    """Transform weights (M, C, 3, 3). Arguments: addresses of weights, target and 9 KiB per thread; M, C."""
    outputs, channels = args.outputs, args.channels
    groups, step = (outputs + _WIDTH - 1) // _WIDTH * COLUMNS, channels * _WIDTH * 4
    taps, row = args.work + thread * _TAPS * 1024, channels * _TAPS * 4
    for group in range(groups * thread // threads, groups * (thread + 1) // threads):
        first = min(group * 16, outputs - 1)
        target = args.out + group // COLUMNS * _POSITIONS * step + group % COLUMNS * 64
        for channel in range(0, channels, 16):
            count = min(16, channels - channel)
            place = args.weights + first * row + channel * _TAPS * 4
            for start in range(0, count * _TAPS, 16):
                transpose_rows(place + start * 4, row, min(16, outputs - first), count * _TAPS - start, taps + start * 64)
            for index in range(count):
                _filter(taps + index * _TAPS * 64, target + (channel + index) * _WIDTH * 4, step)
