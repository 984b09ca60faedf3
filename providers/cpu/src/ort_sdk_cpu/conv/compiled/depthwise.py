"""Depthwise 1-D and 2-D convolutions on NHWC data, for any sizes: vectors are of channels, so that no tap needs a shuffle."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.depthwise import Depthwise
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked

__all__ = ["depthwise"]

_LEAKY_RELU, _CLIP = int(ActivationKind.LEAKY_RELU), int(ActivationKind.CLIP)
_ZERO = np.float32(0)


@inline
def _taps(size: int, kernel: int, dilation: int, origin: int) -> tuple[int, int]:
    """The taps of a window that are within an axis: the first, and the one behind the last."""
    first = 0 if origin >= 0 else (-origin + dilation - 1) // dilation
    stop = 0 if origin >= size else min(kernel, (size - origin + dilation - 1) // dilation)
    return first, stop


@inline
def _finished(args: Depthwise, value: Any) -> Any:
    if args.activation == _CLIP:
        return minimum(splat_f32(args.beta), maximum(splat_f32(args.alpha), value))
    if args.activation != _LEAKY_RELU:
        return value
    # ReLU alone: one instruction, and no NaN for infinity times 0.
    if args.alpha == _ZERO:
        return maximum(value, zero_f32())
    return fused_multiply_add(minimum(value, zero_f32()), splat_f32(args.alpha), maximum(value, zero_f32()))


@inline
def _row(args: Depthwise, sample: int, row: int) -> None:
    channels, height, width = args.channels, args.height, args.width
    kernel_width, columns = args.taps_right, args.columns
    step_down, step_right, pixel = args.dilation_down, args.dilation_right, channels * 4
    bias, top = args.bias, row * args.step_down - args.top
    first_y, stop_y = _taps(height, args.taps_down, step_down, top)
    source = args.x + sample * height * width * pixel
    target = args.out + (sample * args.rows + row) * columns * pixel
    whole = channels // 64 * 64
    for column in range(columns):
        left = column * args.step_right - args.left
        # Taps in the zeros around X are left out, not multiplied: there is no padded copy, and zero times infinity is no NaN.
        first_x, stop_x = _taps(width, kernel_width, step_right, left)
        # Four vectors of channels at a time: as many independent chains as hide the latency of a multiply-add on two ports.
        for address in range(0, whole * 4, 256):
            a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
            if bias:
                a, b = load_f32(bias + address), load_f32(bias + address + 64)
                c, d = load_f32(bias + address + 128), load_f32(bias + address + 192)
            for y in range(first_y, stop_y):
                line = source + ((top + y * step_down) * width + left) * pixel + address
                filters = args.filters + y * kernel_width * pixel + address
                for x in range(first_x, stop_x):
                    tap, weight = line + x * step_right * pixel, filters + x * pixel
                    a = fused_multiply_add(load_f32(tap), load_f32(weight), a)
                    b = fused_multiply_add(load_f32(tap + 64), load_f32(weight + 64), b)
                    c = fused_multiply_add(load_f32(tap + 128), load_f32(weight + 128), c)
                    d = fused_multiply_add(load_f32(tap + 192), load_f32(weight + 192), d)
            found = target + column * pixel + address
            store_f32(found, _finished(args, a))
            store_f32(found + 64, _finished(args, b))
            store_f32(found + 128, _finished(args, c))
            store_f32(found + 192, _finished(args, d))
        # What is left of the channels, by masked vectors: there are at most three.
        for channel in range(whole, channels, 16):
            remainder, address = channels - channel, channel * 4
            a = load_f32_masked(bias + address, remainder) if bias else zero_f32()
            for y in range(first_y, stop_y):
                line = source + ((top + y * step_down) * width + left) * pixel + address
                filters = args.filters + y * kernel_width * pixel + address
                for x in range(first_x, stop_x):
                    value = load_f32_masked(line + x * step_right * pixel, remainder)
                    a = fused_multiply_add(value, load_f32_masked(filters + x * pixel, remainder), a)
            store_f32_masked(target + column * pixel + address, _finished(args, a), remainder)


@task
def depthwise(args: Depthwise, thread: int, threads: int) -> None:
    """activation(Conv(X, W, B)) of NHWC X with filters (KH, KW, C); each thread has a range of the rows of all samples."""
    rows = args.rows
    lines = args.samples * rows
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        _row(args, line // rows, line % rows)
