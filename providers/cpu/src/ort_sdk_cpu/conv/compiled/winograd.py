"""3x3 convolutions with stride 1 on NHWC data by Winograd's minimal filtering F(2x2, 3x3).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016). A tile ``d`` of 4 x 4 inputs, which overlaps with
the next by two rows or columns, gives 2 x 2 outputs by filter ``g``::

    Y = A' [ (G g G') * (B' d B) ] A        interpolation points 0, 1, -1 and infinity

         | 1  0 -1  0 |         |  1    0    0  |         | 1  1  1  0 |
    B' = | 0  1  1  0 |     G = | 1/2  1/2  1/2 |    A' = | 0  1 -1 -1 |
         | 0 -1  1  0 |         | 1/2 -1/2  1/2 |
         | 0  1  0 -1 |         |  0    0    1  |

``*`` is element-wise, and sums over input channels are made before the outer transform. So there are 16 multiplications where a
direct convolution has 36, and at each of the 16 points they are a GEMM of tiles and channels. Stages, for a block of tiles:

1. input transform: V [16 points][tiles][channels], in the thread's workspace;
2. 16 GEMMs for each panel of output channels: M [tiles][16 points][channels of a panel] = V[point] U[panel][point];
3. output transform, epilogue, and store.

Weights U are transformed once, by ``winograd_weights``: [panels of output channels][16 points][input channels][output channels of
a panel], so that stages 2 of a panel read them from begin to end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.winograd import Winograd, WinogradWeights
from ort_sdk_cpu.conv.microkernels.epilogue import finished
from ort_sdk_cpu.gemm.compiled.panels import prefetch_shift
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS, tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import add, multiply, splat_f32, subtract
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked
from ort_sdk_cpu.simd.shuffles import transpose_rows
from ort_sdk_cpu.simd.synchronization import finish_jobs, next_job

__all__ = ["winograd", "winograd_weights"]

_WIDTH = 16 * NR_VECTORS
"""Output channels of a panel."""
_POINTS = 16
"""Products of a channel in a tile."""
# Sums over channels are made of short chains, which are added up: so rounding errors stay at or below those of direct
# convolutions with their longer sums, though the transforms round as well.
_K_BLOCK = 64
"""Most channels summed in one chain."""
_TAPS = 9


@inline
def _patch_row(address: int, pixel: int, first: int, stop: int, left: int) -> Any:
    """``B' d`` along a row of 4 pixels, of which those from ``first`` to ``stop`` are in the image; zeros stand for others."""
    # Most tiles are inside of the image: whole vectors need no masks.
    if left >= 16 and first <= 0 and stop >= 4:
        d0, d1 = load_f32(address), load_f32(address + pixel)
        d2, d3 = load_f32(address + 2 * pixel), load_f32(address + 3 * pixel)
    else:
        d0 = load_f32_masked(address, left if first <= 0 and stop > 0 else 0)
        d1 = load_f32_masked(address + pixel, left if first <= 1 and stop > 1 else 0)
        d2 = load_f32_masked(address + 2 * pixel, left if first <= 2 and stop > 2 else 0)
        d3 = load_f32_masked(address + 3 * pixel, left if first <= 3 and stop > 3 else 0)
    return subtract(d0, d2), add(d1, d2), subtract(d2, d1), subtract(d1, d3)


@inline
def _store_differences(target: int, row: int, d0: Any, d1: Any, d2: Any, d3: Any) -> None:
    """``B'`` along a column of 4; results are ``row`` bytes from each other."""
    store_f32(target, subtract(d0, d2))
    store_f32(target + row, add(d1, d2))
    store_f32(target + 2 * row, subtract(d2, d1))
    store_f32(target + 3 * row, subtract(d1, d3))


@inline
def _transform_tile(address: int, pixel: int, line: int, bounds: Any, channels: int, target: int, step: int) -> None:
    """B' d B of one tile, all channels; ``step`` bytes from point to point."""
    top, bottom, left, right = bounds
    # A vector is 16 channels of a pixel, so that the transform is additions of whole vectors, without shuffles.
    for channel in range(0, channels, 16):
        remainder, at, to = channels - channel, address + channel * 4, target + channel * 4
        a0, a1, a2, a3 = _patch_row(at, pixel, left, right, remainder if top <= 0 < bottom else 0)
        b0, b1, b2, b3 = _patch_row(at + line, pixel, left, right, remainder if top <= 1 < bottom else 0)
        c0, c1, c2, c3 = _patch_row(at + 2 * line, pixel, left, right, remainder if top <= 2 < bottom else 0)
        d0, d1, d2, d3 = _patch_row(at + 3 * line, pixel, left, right, remainder if top <= 3 < bottom else 0)
        _store_differences(to, 4 * step, a0, b0, c0, d0)
        _store_differences(to + step, 4 * step, a1, b1, c1, d1)
        _store_differences(to + 2 * step, 4 * step, a2, b2, c2, d2)
        _store_differences(to + 3 * step, 4 * step, a3, b3, c3, d3)


@inline
def _tile_position(args: Winograd, tile_index: int) -> Any:
    """(sample, row, column) of a tile."""
    rows, columns = args.tile_rows, args.tile_columns
    remainder = tile_index // columns
    return remainder // rows, remainder % rows, tile_index % columns


@inline
def _transform_input(args: Winograd, first: int, count: int, target: int, row: int, step: int) -> None:
    height, width, channels = args.height, args.width, args.channels
    pixel = channels * 4
    line = pixel * width
    for index in range(count):
        sample, tile_row, tile_column = _tile_position(args, first + index)
        top, left = 2 * tile_row - args.top, 2 * tile_column - args.left
        address = args.x + (sample * height + top) * line + left * pixel
        bounds = (-top, height - top, -left, width - left)
        _transform_tile(address, pixel, line, bounds, channels, target + index * row, step)


@inline
def _multiply(inputs: int, row: int, step: int, count: int, channels: int, weights: int, sums: int, sums_row: int) -> None:
    """The 16 GEMMs of some tiles and one panel of weights."""
    blocks, tiles = (channels + _K_BLOCK - 1) // _K_BLOCK, (count + MR - 1) // MR
    shift, panel_row = prefetch_shift(tiles), _WIDTH * 4
    for position in range(_POINTS):
        for block in range(blocks):
            start = channels * block // blocks
            steps = channels * (block + 1) // blocks - start
            panel = weights + (position * channels + start) * panel_row
            following = panel + steps * panel_row
            source, target = inputs + position * step + start * 4, sums + position * panel_row
            for index in range(tiles):
                # Tiles of nearly equal height instead of full ones and a remainder: a low register tile waits for its loads.
                first = count * index // tiles
                height = count * (index + 1) // tiles - first
                soon = following + min(index * (steps >> shift), steps) * panel_row
                x, y = source + first * row, target + first * sums_row
                tile(height, panel, panel_row, 64, x, row, steps, y, sums_row, int(block == 0), soon, panel_row, shift)


@inline
def _finish(args: Winograd, offset: int, channel: int, left: int, value: Any) -> None:
    """Bias, addend and activation of 16 channels of a pixel, then into the output."""
    bias = args.bias
    if bias:
        value = add(value, load_f32_masked(bias + channel * 4, left))
    store_f32_masked(args.out + offset, finished(args, offset, left, value), left)


@inline
def _row_of_sums(address: int) -> Any:
    """``A'`` along a row of 4 points: two outputs."""
    m0, m1 = load_f32(address), load_f32(address + _WIDTH * 4)
    m2, m3 = load_f32(address + 2 * _WIDTH * 4), load_f32(address + 3 * _WIDTH * 4)
    return add(m0, add(m1, m2)), subtract(subtract(m1, m2), m3)


@inline
def _transform_output(args: Winograd, first: int, count: int, sums: int, sums_row: int, start: int) -> None:
    outputs, height, width = args.outputs, args.rows, args.columns
    pixel, line = outputs * 4, outputs * 4 * width
    for index in range(count):
        sample, tile_row, tile_column = _tile_position(args, first + index)
        has_below, has_right = 2 * tile_row + 1 < height, 2 * tile_column + 1 < width
        corner = (sample * height + 2 * tile_row) * line + 2 * tile_column * pixel
        for lane in range(0, min(_WIDTH, outputs - start), 16):
            address, channel, left = sums + index * sums_row + lane * 4, start + lane, outputs - start - lane
            offset = corner + channel * 4
            a0, a1 = _row_of_sums(address)
            b0, b1 = _row_of_sums(address + 4 * _WIDTH * 4)
            c0, c1 = _row_of_sums(address + 8 * _WIDTH * 4)
            d0, d1 = _row_of_sums(address + 12 * _WIDTH * 4)
            _finish(args, offset, channel, left, add(a0, add(b0, c0)))
            if has_right:
                _finish(args, offset + pixel, channel, left, add(a1, add(b1, c1)))
            if has_below:
                _finish(args, offset + line, channel, left, subtract(subtract(b0, c0), d0))
            if has_below and has_right:
                _finish(args, offset + line + pixel, channel, left, subtract(subtract(b1, c1), d1))


@task
def winograd(args: Winograd, thread: int, threads: int) -> None:
    """A 3x3 convolution with epilogue. A job is a block of tiles in a part of the output channels; threads steal jobs."""
    channels, outputs = args.channels, args.outputs
    tiles, blocks, channel_parts = (
        args.samples * args.tile_rows * args.tile_columns,
        args.blocks,
        args.channel_parts,
    )
    panels, jobs = (outputs + _WIDTH - 1) // _WIDTH, blocks * channel_parts
    at_once = (tiles + blocks - 1) // blocks
    # A cache line more than needed, for each tile and for each point: rows of a power of two would share a few cache sets.
    row = (channels + 15) // 16 * 64 + 64
    step, sums_row = at_once * row + 64, (_POINTS * _WIDTH + 16) * 4
    inputs = args.work + thread * args.work_bytes
    sums = inputs + _POINTS * step
    counters, made = args.jobs.first, -1
    job, tried = next_job(counters, jobs, thread, threads, 0)
    while job >= 0:
        block, channel_part = job // channel_parts, job % channel_parts
        first = tiles * block // blocks
        count = tiles * (block + 1) // blocks - first
        # Jobs of one block follow each other in a thread's own range: it transforms the tiles once for all of them.
        if block != made:
            _transform_input(args, first, count, inputs, row, step)
            made = block
        for panel in range(panels * channel_part // channel_parts, panels * (channel_part + 1) // channel_parts):
            weights = args.weights + panel * _POINTS * channels * _WIDTH * 4
            _multiply(inputs, row, step, count, channels, weights, sums, sums_row)
            _transform_output(args, first, count, sums, sums_row, panel * _WIDTH)
        job, tried = next_job(counters, jobs, thread, threads, tried)
    finish_jobs(counters, threads)


@inline
def _filtered(g0: Any, g1: Any, g2: Any) -> Any:
    """``G g``: three taps at the four points."""
    half = splat_f32(np.float32(0.5))
    ends, middle = multiply(add(g0, g2), half), multiply(g1, half)
    return g0, add(ends, middle), subtract(ends, middle), g2


@inline
def _store_filtered(target: int, row: int, g0: Any, g1: Any, g2: Any) -> None:
    u0, u1, u2, u3 = _filtered(g0, g1, g2)
    store_f32(target, u0)
    store_f32(target + row, u1)
    store_f32(target + 2 * row, u2)
    store_f32(target + 3 * row, u3)


@inline
def _filter(taps: int, target: int, step: int) -> None:
    """``G g G'`` of one channel of 16 outputs: vectors of 9 taps to 16 points, ``step`` bytes from point to point."""
    a0, a1, a2, a3 = _filtered(load_f32(taps), load_f32(taps + 64), load_f32(taps + 128))
    b0, b1, b2, b3 = _filtered(load_f32(taps + 192), load_f32(taps + 256), load_f32(taps + 320))
    c0, c1, c2, c3 = _filtered(load_f32(taps + 384), load_f32(taps + 448), load_f32(taps + 512))
    _store_filtered(target, 4 * step, a0, b0, c0)
    _store_filtered(target + step, 4 * step, a1, b1, c1)
    _store_filtered(target + 2 * step, 4 * step, a2, b2, c2)
    _store_filtered(target + 3 * step, 4 * step, a3, b3, c3)


@task
def winograd_weights(args: WinogradWeights, thread: int, threads: int) -> None:
    """Transform weights (M, C, 3, 3); each thread has a range of groups of 16 output channels."""
    outputs, channels = args.outputs, args.channels
    groups, step = (outputs + _WIDTH - 1) // _WIDTH * NR_VECTORS, channels * _WIDTH * 4
    taps, row = args.work + thread * _TAPS * 1024, channels * _TAPS * 4
    for group in range(groups * thread // threads, groups * (thread + 1) // threads):
        first = min(group * 16, outputs - 1)
        target = args.out + group // NR_VECTORS * _POINTS * step + group % NR_VECTORS * 64
        for channel in range(0, channels, 16):
            count = min(16, channels - channel)
            address = args.weights + first * row + channel * _TAPS * 4
            # 16 outputs' taps become vectors across outputs, so that the transform needs no shuffles.
            for start in range(0, count * _TAPS, 16):
                transpose_rows(address + start * 4, row, min(16, outputs - first), count * _TAPS - start, taps + start * 64)
            for index in range(count):
                _filter(taps + index * _TAPS * 64, target + (channel + index) * _WIDTH * 4, step)
