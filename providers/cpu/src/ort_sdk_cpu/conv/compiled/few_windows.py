"""Convolutions with few windows: dot products of copied windows (im2row) with the rows of NCHW weights where they are.

With as few windows, the time goes into reading the weights: they are read once, by four windows together, and never packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.few_windows import FewWindows
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd import math
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, reduce_add, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, read_f32, store_f32_masked, write_f32

__all__ = ["few_windows"]

_IDENTITY, _CLIP = int(ActivationKind.IDENTITY), int(ActivationKind.CLIP)
_LEAKY_RELU, _SIGMOID = int(ActivationKind.LEAKY_RELU), int(ActivationKind.SIGMOID)
_TANH, _HARD_SIGMOID = int(ActivationKind.TANH), int(ActivationKind.HARD_SIGMOID)


@inline
def _copy_windows(args: FewWindows, x: int, channels: int, work: int, work_row: int) -> None:
    """im2row of a group's channels of one sample, zeros for what is outside of X."""
    height, width = args.height, args.width
    kernel_height, kernel_width = args.taps_down, args.taps_right
    out_height, out_width = args.rows, args.columns
    stride_height, stride_width = args.step_down, args.step_right
    dilation_height, dilation_width = args.dilation_down, args.dilation_right
    top, left = args.top, args.left
    for row in range(out_height):
        for column in range(out_width):
            target = work + (row * out_width + column) * work_row
            for address in range(0, work_row, 64):
                store_f32_masked(target + address, zero_f32(), (work_row - address) // 4)
            first = column * stride_width - left
            for channel in range(channels):
                for tap_row in range(kernel_height):
                    y = row * stride_height + tap_row * dilation_height - top
                    if 0 <= y < height:
                        _copy_line(x + (channel * height + y) * width * 4, first, dilation_width, width, target, kernel_width)
                    target += kernel_width * 4


@inline
def _copy_line(line: int, first: int, dilation: int, width: int, target: int, count: int) -> None:
    """Taps of one row of a window that are within the edges."""
    # Taps next to each other are copied in vectors, others one by one.
    if dilation == 1:
        low, high = max(0, -first), min(count, width - first)
        for tap in range(low, high, 16):
            store_f32_masked(target + tap * 4, load_f32_masked(line + (first + tap) * 4, high - tap), high - tap)
    else:
        for tap in range(count):
            address = first + tap * dilation
            if 0 <= address < width:
                write_f32(target + tap * 4, read_f32(line + address * 4))


@inline
def _finished(args: FewWindows, value: Any, row: int, address: int) -> Any:
    bias, added, activation = args.bias, args.added, args.activation
    if bias:
        value += read_f32(bias + row * 4)
    if added:
        value += read_f32(added + address)
    if activation == _LEAKY_RELU and value < np.float32(0):
        slope = args.alpha
        value = value * slope if slope != np.float32(0) else np.float32(0)
    return value


@inline
def _four_windows(
    args: FewWindows, weight: int, row: int, work: int, work_row: int, depth: int, count: int, address: int
) -> None:
    """Products of a row of the weights with up to four windows; those that are not there are met again."""
    # Windows that are not there are the last one once more: their sums are not stored, and the loop has no cases.
    second, third, fourth = min(1, count - 1) * work_row, min(2, count - 1) * work_row, min(3, count - 1) * work_row
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = depth // 16 * 64
    for step in range(0, whole, 64):
        value, window = load_f32(weight + step), work + step
        a, b = fused_multiply_add(load_f32(window), value, a), fused_multiply_add(load_f32(window + second), value, b)
        c = fused_multiply_add(load_f32(window + third), value, c)
        d = fused_multiply_add(load_f32(window + fourth), value, d)
    remainder = depth % 16
    if remainder:
        value, window = load_f32_masked(weight + whole, remainder), work + whole
        a = fused_multiply_add(load_f32_masked(window, remainder), value, a)
        b = fused_multiply_add(load_f32_masked(window + second, remainder), value, b)
        c = fused_multiply_add(load_f32_masked(window + third, remainder), value, c)
        d = fused_multiply_add(load_f32_masked(window + fourth, remainder), value, d)
    out = args.out
    write_f32(out + address, _finished(args, reduce_add(a), row, address))
    if count > 1:
        write_f32(out + address + 4, _finished(args, reduce_add(b), row, address + 4))
    if count > 2:
        write_f32(out + address + 8, _finished(args, reduce_add(c), row, address + 8))
    if count > 3:
        write_f32(out + address + 12, _finished(args, reduce_add(d), row, address + 12))


@inline
def _one_window(args: FewWindows, weight: int, row: int, work: int, depth: int, address: int) -> None:
    """Product of a row of the weights with one window, in four sums."""
    # One window has one sum: four partial ones are independent chains, which hide the latency of a multiply-add.
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
        a = fused_multiply_add(load_f32_masked(work + step, left), load_f32_masked(weight + step, left), a)
    total = (reduce_add(a) + reduce_add(b)) + (reduce_add(c) + reduce_add(d))
    write_f32(args.out + address, _finished(args, total, row, address))


@inline
def _activate(args: FewWindows, address: int, count: int) -> None:
    """Activation of finished results in address, but for the one that each result met when it was written."""
    activation, first, second = args.activation, splat_f32(args.alpha), splat_f32(args.beta)
    for start in range(0, count * 4, 64):
        left = count - start // 4
        value = load_f32_masked(address + start, left)
        if activation == _SIGMOID:
            value = math.sigmoid(value)
        elif activation == _TANH:
            value = math.tanh(value)
        elif activation == _HARD_SIGMOID:
            line = fused_multiply_add(value, first, second)
            value = minimum(splat_f32(np.float32(1)), maximum(zero_f32(), line))
        elif activation == _CLIP:
            value = minimum(second, maximum(first, value))
        store_f32_masked(address + start, value, left)


@task
def few_windows(args: FewWindows, thread: int, threads: int) -> None:
    """activation(Conv(X, W, B) + Z) of one or two spatial axes; each thread has a range of the output channels of each group."""
    samples, channels = args.samples, args.channels
    outputs, groups = args.outputs, args.groups
    positions = args.rows * args.columns
    depth = channels // groups * args.taps_down * args.taps_right
    per_group, sample_bytes = outputs // groups, channels * args.height * args.width * 4
    work = args.work + thread * positions * depth * 4
    start, stop = per_group * thread // threads, per_group * (thread + 1) // threads
    for job in range(samples * groups):
        sample, group = job // groups, job % groups
        x = args.x + sample * sample_bytes + group * (sample_bytes // groups)
        # Every thread copies all windows for itself: there are at most 16, and a barrier would cost more.
        _copy_windows(args, x, channels // groups, work, depth * 4)
        for index in range(start, stop):
            row = group * per_group + index
            weight, address = args.weights + row * depth * 4, (sample * outputs + row) * positions * 4
            # Gates of channels (squeeze and excitation) have one window: a matrix-vector product.
            if positions == 1:
                _one_window(args, weight, row, work, depth, address)
            else:
                for first in range(0, positions, 4):
                    count = positions - first
                    _four_windows(args, weight, row, work + first * depth * 4, depth * 4, depth, count, address + first * 4)
        # Scalars are stored one by one; transcendental functions go over what was stored in vectors.
        if args.activation not in (_IDENTITY, _LEAKY_RELU):
            written = (sample * outputs + group * per_group + start) * positions
            _activate(args, args.out + written * 4, (stop - start) * positions)
