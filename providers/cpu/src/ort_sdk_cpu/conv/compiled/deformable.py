"""im2row of DeformConv: bilinear samples between pixels, where offsets say, as rows of a matrix.

Dai et al., "Deformable Convolutional Networks" (2017); factors for the taps are of Zhu et al.'s version 2 (2019).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.deformable import SampleWindows
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, read_f32, store_f32_masked

__all__ = ["sample_windows"]


@inline
def _share(address: float, corner: float, size: int) -> Any:
    """Weight of a row or column of pixels in a sample: 0 outside of the image."""
    if not 0 <= corner <= size - 1:
        return np.float32(0)
    return np.float32(1) - abs(address - corner)


@inline
def _add_corner(
    x: int, pitch: int, size: int, row: float, column: float, share: float, channel: int, left: int, total: Any
) -> Any:
    """A pixel's channels times its share added; nothing is read outside of the image, where the share is 0 and never NaN."""
    # Neither is anything read outside of the image, nor does an infinity there become NaN by a factor of 0.
    if share == 0:
        return total
    address = x + int(row) * pitch + int(column) * size + channel * 4
    return fused_multiply_add(load_f32_masked(address, left), splat_f32(share), total)


@inline
def _sample(args: SampleWindows, x: int, down: float, right: float, factor: float, first: int, count: int, out: int) -> None:
    """Channels of a group at a address."""
    height, width, size = args.height, args.width, args.channels * 4
    pitch, top, start = width * size, np.float32(math.floor(down)), np.float32(math.floor(right))
    above, below = _share(down, top, height), _share(down, top + np.float32(1), height)
    before, behind = _share(right, start, width), _share(right, start + np.float32(1), width)
    for channel in range(0, count, 16):
        # NHWC: the four pixels around a sample are vectors of channels, which all have the same weights.
        left, total = count - channel, zero_f32()
        total = _add_corner(x, pitch, size, top, start, above * before, first + channel, left, total)
        total = _add_corner(x, pitch, size, top, start + np.float32(1), above * behind, first + channel, left, total)
        total = _add_corner(x, pitch, size, top + np.float32(1), start, below * before, first + channel, left, total)
        total = _add_corner(
            x, pitch, size, top + np.float32(1), start + np.float32(1), below * behind, first + channel, left, total
        )
        store_f32_masked(out + channel * 4, multiply(total, splat_f32(factor)), left)


@task
def sample_windows(args: SampleWindows, thread: int, threads: int) -> None:
    """Windows as rows (samples * output pixels, taps * channels); each thread has a range of the output pixels of all samples."""
    channels, rows, columns = args.channels, args.rows, args.columns
    taps, groups = args.taps_down * args.taps_right, args.groups
    pixels, count = rows * columns, channels // groups
    image = args.height * args.width * channels * 4
    units = args.samples * pixels
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        sample, pixel = unit // pixels, unit % pixels
        x, out = args.x + sample * image, args.out + unit * taps * channels * 4
        top = pixel // columns * args.step_down - args.top
        start = pixel % columns * args.step_right - args.left
        # Groups of channels have offsets of their own; all channels of a group are sampled at the same points.
        for index in range(groups * taps):
            group, tap = index // taps, index % taps
            given = args.offsets + (((sample * groups * taps + index) * 2) * pixels + pixel) * 4
            down = np.float32(top + tap // args.taps_right * args.dilation_down) + read_f32(given)
            right = np.float32(start + tap % args.taps_right * args.dilation_right) + read_f32(given + pixels * 4)
            factor = np.float32(1)
            if args.factors:
                factor = read_f32(args.factors + ((sample * groups * taps + index) * pixels + pixel) * 4)
            _sample(args, x, down, right, factor, group * count, count, out + (tap * channels + group * count) * 4)
