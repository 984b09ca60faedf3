"""Softmax and normalizations along rows of float32, and of channels.

A row stays in the first cache from pass to pass, or at least in the second: so passes cost little beside reading it once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.normalization.arguments.rows import GroupNormalization, InstanceNormalization, Normalization, Softmax
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    fused_multiply_add,
    mask_lanes,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    splat_f32,
    square_root,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_nonpositive
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, load_f32_masked_or, read_f32, store_f32, store_f32_masked

__all__ = [
    "group_normalization",
    "instance_normalization_nchw",
    "instance_normalization_nhwc",
    "layer_normalization",
    "rms_normalization",
    "softmax",
    "softmax_row",
]

_LOWEST = np.float32(-np.inf)
_ZERO = np.float32(0)
_ONE = np.float32(1)


@inline
def _row_max(x: int, width: int) -> Any:
    lowest = splat_f32(_LOWEST)
    # Two accumulators, so that one comparison does not wait for the one before.
    first, second = lowest, lowest
    whole = width // 32 * 32
    for offset in range(0, whole * 4, 128):
        first, second = maximum(load_f32(x + offset), first), maximum(load_f32(x + offset + 64), second)
    for element in range(whole, width, 16):
        first = maximum(load_f32_masked_or(x + element * 4, width - element, lowest), first)
    return reduce_max(maximum(first, second))


@inline
def softmax_row(x: int, out: int, width: int) -> None:
    """Softmax of ``width`` elements at x, which may be ``out``."""
    # Three passes: the largest element, by which all are shifted so that no power overflows; powers and their sum; quotients.
    shift, total, whole = splat_f32(_row_max(x, width)), zero_f32(), width // 16 * 64
    for offset in range(0, whole, 64):
        power = exp_nonpositive(subtract(load_f32(x + offset), shift))
        total = add(total, power)
        store_f32(out + offset, power)
    left = width % 16
    if left:
        power = exp_nonpositive(subtract(load_f32_masked_or(x + whole, left, shift), shift))
        total = add(total, mask_lanes(power, left))
        store_f32_masked(out + whole, power, left)
    factor = splat_f32(_ONE / reduce_add(total))
    for offset in range(0, whole, 64):
        store_f32(out + offset, multiply(load_f32(out + offset), factor))
    if left:
        store_f32_masked(out + whole, multiply(load_f32_masked(out + whole, left), factor), left)


@task
def softmax(args: Softmax, thread: int, threads: int) -> None:
    """Softmax along the last axis; each thread has a range of rows."""
    for row in range(args.rows * thread // threads, args.rows * (thread + 1) // threads):
        offset = row * args.width * 4
        softmax_row(args.x + offset, args.out + offset, args.width)


@inline
def _sum(x: int, width: int) -> Any:
    # Four accumulators hide the latency of an addition, and make the error of a sum smaller.
    first, second, third, fourth = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = width // 64 * 64
    for offset in range(0, whole * 4, 256):
        first, second = add(first, load_f32(x + offset)), add(second, load_f32(x + offset + 64))
        third, fourth = add(third, load_f32(x + offset + 128)), add(fourth, load_f32(x + offset + 192))
    for element in range(whole, width, 16):
        first = add(first, load_f32_masked(x + element * 4, width - element))
    return reduce_add(add(add(first, second), add(third, fourth)))


@inline
def _sum_of_squares(x: int, width: int, mean: float) -> Any:
    """Of the differences from the mean."""
    # Lanes behind the last element are loaded as the mean, whose difference from it adds nothing.
    shift = splat_f32(mean)
    first, second = zero_f32(), zero_f32()
    whole = width // 32 * 32
    for offset in range(0, whole * 4, 128):
        here, there = subtract(load_f32(x + offset), shift), subtract(load_f32(x + offset + 64), shift)
        first, second = fused_multiply_add(here, here, first), fused_multiply_add(there, there, second)
    for element in range(whole, width, 16):
        here = subtract(load_f32_masked_or(x + element * 4, width - element, shift), shift)
        first = fused_multiply_add(here, here, first)
    return reduce_add(add(first, second))


@inline
def _sum_of_rows(x: int, skip: int, bias: int, total: int, width: int) -> None:
    """X + skip + bias, if there is a bias."""
    whole = width // 16 * 64
    for offset in range(0, whole, 64):
        value = add(load_f32(x + offset), load_f32(skip + offset))
        store_f32(total + offset, add(value, load_f32(bias + offset)) if bias else value)
    left = width % 16
    if left:
        value = add(load_f32_masked(x + whole, left), load_f32_masked(skip + whole, left))
        store_f32_masked(total + whole, add(value, load_f32_masked(bias + whole, left)) if bias else value, left)


@inline
def _scaled(x: int, out: int, width: int, mean: float, factor: float, scale: int, shift: int) -> None:
    """(x - mean) * factor * scale + shift."""
    # One fused multiply-add for scale and shift. The remainder comes after the loop, which then has no masks.
    means, factors, whole = splat_f32(mean), splat_f32(factor), width // 16 * 64
    for offset in range(0, whole, 64):
        value = multiply(subtract(load_f32(x + offset), means), factors)
        other = load_f32(shift + offset) if shift else zero_f32()
        store_f32(out + offset, fused_multiply_add(value, load_f32(scale + offset), other))
    left = width % 16
    if left:
        value = multiply(subtract(load_f32_masked(x + whole, left), means), factors)
        other = load_f32_masked(shift + whole, left) if shift else zero_f32()
        store_f32_masked(out + whole, fused_multiply_add(value, load_f32_masked(scale + whole, left), other), left)


@inline
def _normalized(centred: bool, args: Normalization, thread: int, threads: int) -> None:
    rows, width = args.rows, args.width
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        start = row * width * 4
        x = args.x + start
        if args.skip:
            _sum_of_rows(x, args.skip + start, args.bias, args.total + start, width)
            x = args.total + start
        # Two passes over a row that is in the first cache: one pass by E[x^2] - E[x]^2 cancels where the mean is large.
        mean = _sum(x, width) / np.float32(width) if centred else _ZERO
        variance = _sum_of_squares(x, width, mean) / np.float32(width)
        _scaled(x, args.out + start, width, mean, _ONE / np.sqrt(variance + args.epsilon), args.scale, args.shift)


@task
def layer_normalization(args: Normalization, thread: int, threads: int) -> None:
    """LayerNormalization of x, or of x + skip + bias, along the last axis (Ba et al. 2016); each thread has a range of rows."""
    _normalized(True, args, thread, threads)


@task
def rms_normalization(args: Normalization, thread: int, threads: int) -> None:
    """The same without subtracting the mean (Zhang & Sennrich 2019)."""
    _normalized(False, args, thread, threads)


@inline
def _shifted_and_scaled(x: int, out: int, width: int, mean: Any, factor: Any, shift: Any) -> None:
    """(x - mean) * factor + shift."""
    whole, left = width // 16 * 64, width % 16
    for offset in range(0, whole, 64):
        store_f32(out + offset, fused_multiply_add(subtract(load_f32(x + offset), mean), factor, shift))
    if left:
        value = subtract(load_f32_masked(x + whole, left), mean)
        store_f32_masked(out + whole, fused_multiply_add(value, factor, shift), left)


@task
def instance_normalization_nchw(args: InstanceNormalization, thread: int, threads: int) -> None:
    """InstanceNormalization of NCHW (Ulyanov et al. 2016): each thread has a range of channels of samples."""
    width = args.pixels
    rows = args.samples * args.channels
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, channel = args.x + row * width * 4, row % args.channels * 4
        mean = _sum(x, width) / np.float32(width)
        variance = _sum_of_squares(x, width, mean) / np.float32(width)
        # Scale and 1 / deviation are one factor for the whole channel: one multiply-add for each element.
        factor = read_f32(args.scale + channel) / np.sqrt(variance + args.epsilon)
        shift = splat_f32(read_f32(args.shift + channel))
        _shifted_and_scaled(x, args.out + row * width * 4, width, splat_f32(mean), splat_f32(factor), shift)


@task
def group_normalization(args: GroupNormalization, thread: int, threads: int) -> None:
    """GroupNormalization of NCHW (Wu & He 2018): each thread has a range of groups of samples."""
    # A group's channels are contiguous: its mean and variance are those of one long row, only scale and shift change within.
    count, pixels = args.group_channels, args.pixels
    rows, width = args.samples * args.groups, count * pixels
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * width * 4, args.out + row * width * 4
        mean = _sum(x, width) / np.float32(width)
        root = np.sqrt(_sum_of_squares(x, width, mean) / np.float32(width) + args.epsilon)
        for channel in range(count):
            offset, start = (row % args.groups * count + channel) // args.sharing * 4, channel * pixels * 4
            factor, shift = read_f32(args.scale + offset) / root, read_f32(args.shift + offset)
            _shifted_and_scaled(x + start, out + start, pixels, splat_f32(mean), splat_f32(factor), splat_f32(shift))


@inline
def _normalize_vector(args: InstanceNormalization, x: int, out: int, channel: int, left: int) -> None:
    """All pixels of up to 16 channels."""
    pixels, step = args.pixels, args.channels * 4
    count, total, squares = splat_f32(np.float32(pixels)), zero_f32(), zero_f32()
    # Lanes are channels: nothing is added across lanes, and each channel's sum is in the order of its pixels.
    for pixel in range(x, x + pixels * step, step):
        total = add(total, load_f32_masked(pixel, left))
    mean = divide(total, count)
    for pixel in range(x, x + pixels * step, step):
        difference = subtract(load_f32_masked(pixel, left), mean)
        squares = fused_multiply_add(difference, difference, squares)
    root = square_root(add(divide(squares, count), splat_f32(args.epsilon)))
    factor = divide(load_f32_masked(args.scale + channel * 4, left), root)
    shift = load_f32_masked(args.shift + channel * 4, left)
    for pixel in range(pixels):
        value = multiply(subtract(load_f32_masked(x + pixel * step, left), mean), factor)
        store_f32_masked(out + pixel * step, add(value, shift), left)


@task
def instance_normalization_nhwc(args: InstanceNormalization, thread: int, threads: int) -> None:
    """InstanceNormalization of NHWC: each thread has a range of vectors of 16 channels."""
    channels = args.channels
    vectors = (channels + 15) // 16
    units = args.samples * vectors
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        channel = unit % vectors * 16
        offset = (unit // vectors * args.pixels * channels + channel) * 4
        _normalize_vector(args, args.x + offset, args.out + offset, channel, channels - channel)
