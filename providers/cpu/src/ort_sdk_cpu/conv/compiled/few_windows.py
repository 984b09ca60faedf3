"""Convolution with few windows, as those of short signals: dot products of windows with the rows of weights as they lie.

With few windows the time goes into reading the weights, so that they are read once, by all windows together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, reduce_add, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32_first, write_f32

__all__ = ["windows"]

_IDENTITY, _CLIP = int(ActivationKind.IDENTITY), int(ActivationKind.CLIP)
_LEAKY_RELU, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SIGMOID)
_TANH, _HARD_SIGMOID = int(ActivationKind.TANH), int(ActivationKind.HARD_SIGMOID)


@inner
def _copy_windows(record: int, x: int, channels: int, work: int, work_row: int) -> None:
    """Windows of one sample's channels as rows, zeros where they are behind the edges."""
    height, width = argument(record, 6), argument(record, 7)
    kernel_height, kernel_width = argument(record, 8), argument(record, 9)
    out_height, out_width = argument(record, 10), argument(record, 11)
    stride_height, stride_width = argument(record, 12), argument(record, 13)
    dilation_height, dilation_width = argument(record, 14), argument(record, 15)
    top, left = argument(record, 16), argument(record, 17)
    for row in range(out_height):
        for column in range(out_width):
            target = work + (row * out_width + column) * work_row
            for place in range(0, work_row, 64):
                store_f32_first(target + place, zero_f32(), (work_row - place) // 4)
            first = column * stride_width - left
            for channel in range(channels):
                for tap_row in range(kernel_height):
                    y = row * stride_height + tap_row * dilation_height - top
                    if 0 <= y < height:
                        _copy_line(x + (channel * height + y) * width * 4, first, dilation_width, width, target, kernel_width)
                    target += kernel_width * 4


@inner
def _copy_line(line: int, first: int, dilation: int, width: int, target: int, count: int) -> None:
    """Taps of one row of a window that are within the edges."""
    if dilation == 1:
        low, high = max(0, -first), min(count, width - first)
        for tap in range(low, high, 16):
            store_f32_first(target + tap * 4, load_f32_first(line + (first + tap) * 4, high - tap), high - tap)
    else:
        for tap in range(count):
            place = first + tap * dilation
            if 0 <= place < width:
                write_f32(target + tap * 4, read_f32(line + place * 4))


@inner
def _finished(record: int, value: Any, row: int, place: int) -> Any:
    bias, added, activation = argument(record, 2), argument(record, 3), argument(record, 18)
    if bias:
        value += read_f32(bias + row * 4)
    if added:
        value += read_f32(added + place)
    if activation == _LEAKY_RELU and value < np.float32(0):
        slope = number(record, 19)
        value = value * slope if slope != np.float32(0) else np.float32(0)
    return value


@inner
def _four_windows(record: int, weight: int, row: int, work: int, work_row: int, depth: int, count: int, place: int) -> None:
    """Products of a row of the weights with up to four windows; those that are not there are met again."""
    second, third, fourth = min(1, count - 1) * work_row, min(2, count - 1) * work_row, min(3, count - 1) * work_row
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = depth // 16 * 64
    for step in range(0, whole, 64):
        value, window = load_f32(weight + step), work + step
        a, b = fused_multiply_add(load_f32(window), value, a), fused_multiply_add(load_f32(window + second), value, b)
        c = fused_multiply_add(load_f32(window + third), value, c)
        d = fused_multiply_add(load_f32(window + fourth), value, d)
    rest = depth % 16
    if rest:
        value, window = load_f32_first(weight + whole, rest), work + whole
        a = fused_multiply_add(load_f32_first(window, rest), value, a)
        b = fused_multiply_add(load_f32_first(window + second, rest), value, b)
        c = fused_multiply_add(load_f32_first(window + third, rest), value, c)
        d = fused_multiply_add(load_f32_first(window + fourth, rest), value, d)
    out = argument(record, 4)
    write_f32(out + place, _finished(record, reduce_add(a), row, place))
    if count > 1:
        write_f32(out + place + 4, _finished(record, reduce_add(b), row, place + 4))
    if count > 2:
        write_f32(out + place + 8, _finished(record, reduce_add(c), row, place + 8))
    if count > 3:
        write_f32(out + place + 12, _finished(record, reduce_add(d), row, place + 12))


@inner
def _one_window(record: int, weight: int, row: int, work: int, depth: int, place: int) -> None:
    """Product of a row of the weights with one window, in four sums."""
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = depth // 64 * 256
    for step in range(0, whole, 256):
        row_place, window = weight + step, work + step
        a = fused_multiply_add(load_f32(window), load_f32(row_place), a)
        b = fused_multiply_add(load_f32(window + 64), load_f32(row_place + 64), b)
        c = fused_multiply_add(load_f32(window + 128), load_f32(row_place + 128), c)
        d = fused_multiply_add(load_f32(window + 192), load_f32(row_place + 192), d)
    for step in range(whole, depth * 4, 64):
        left = depth - step // 4
        a = fused_multiply_add(load_f32_first(work + step, left), load_f32_first(weight + step, left), a)
    total = (reduce_add(a) + reduce_add(b)) + (reduce_add(c) + reduce_add(d))
    write_f32(argument(record, 4) + place, _finished(record, total, row, place))


@inner
def _activate(record: int, place: int, count: int) -> None:
    """Activation of finished results in place, but for the one that each result met when it was written."""
    activation, first, second = argument(record, 18), splat_f32(number(record, 19)), splat_f32(number(record, 24))
    for start in range(0, count * 4, 64):
        left = count - start // 4
        value = load_f32_first(place + start, left)
        if activation == _SIGMOID:
            value = math.sigmoid(value)
        elif activation == _TANH:
            value = math.tanh(value)
        elif activation == _HARD_SIGMOID:
            line = fused_multiply_add(value, first, second)
            value = minimum(splat_f32(np.float32(1)), maximum(zero_f32(), line))
        elif activation == _CLIP:
            value = minimum(second, maximum(first, value))
        store_f32_first(place + start, value, left)


@task
def windows(record: int, part: int, parts: int) -> None:
    """activation(Conv(X, W, B) + Z) of one or two spatial axes.

    Arguments: addresses of X, W, B or 0, Z or 0, Y, and of working memory (parts, output positions, depth); X's height and width,
    the kernel's, Y's, strides, dilations, padding at the top and left; activation and its first number; samples, X's channels,
    Y's channels, groups; the activation's second number: none, LeakyRelu, Sigmoid, Tanh, HardSigmoid or Clip.
    """
    samples, channels = argument(record, 20), argument(record, 21)
    outputs, groups = argument(record, 22), argument(record, 23)
    positions = argument(record, 10) * argument(record, 11)
    depth = channels // groups * argument(record, 8) * argument(record, 9)
    per_group, sample_bytes = outputs // groups, channels * argument(record, 6) * argument(record, 7) * 4
    work = argument(record, 5) + part * positions * depth * 4
    start, stop = per_group * part // parts, per_group * (part + 1) // parts
    for job in range(samples * groups):
        sample, group = job // groups, job % groups
        x = argument(record, 0) + sample * sample_bytes + group * (sample_bytes // groups)
        _copy_windows(record, x, channels // groups, work, depth * 4)
        for index in range(start, stop):
            row = group * per_group + index
            weight, place = argument(record, 1) + row * depth * 4, (sample * outputs + row) * positions * 4
            if positions == 1:
                _one_window(record, weight, row, work, depth, place)
            else:
                for first in range(0, positions, 4):
                    count = positions - first
                    _four_windows(record, weight, row, work + first * depth * 4, depth * 4, depth, count, place + first * 4)
        if argument(record, 18) != _IDENTITY and argument(record, 18) != _LEAKY_RELU:
            written = (sample * outputs + group * per_group + start) * positions
            _activate(record, argument(record, 4) + written * 4, (stop - start) * positions)
