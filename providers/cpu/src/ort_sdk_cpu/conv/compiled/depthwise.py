"""Convolution with one filter per channel on channels-last data, for any sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.depthwise import Depthwise
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_f32_first

__all__ = ["depthwise"]

_LEAKY_RELU, _CLIP = int(ActivationKind.LEAKY_RELU), int(ActivationKind.CLIP)
_ZERO = np.float32(0)


@inner
def _taps(size: int, kernel: int, dilation: int, origin: int) -> tuple[int, int]:
    """First and last but one tap of a window that are within an axis."""
    first = 0 if origin >= 0 else (-origin + dilation - 1) // dilation
    stop = 0 if origin >= size else min(kernel, (size - origin + dilation - 1) // dilation)
    return first, stop


@inner
def _finished(args: Depthwise, value: Any) -> Any:
    if args.activation == _CLIP:
        return minimum(splat_f32(args.beta), maximum(splat_f32(args.alpha), value))
    if args.activation != _LEAKY_RELU:
        return value
    if args.alpha == _ZERO:
        return maximum(value, zero_f32())
    return fused_multiply_add(minimum(value, zero_f32()), splat_f32(args.alpha), maximum(value, zero_f32()))


@inner
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
        first_x, stop_x = _taps(width, kernel_width, step_right, left)
        for place in range(0, whole * 4, 256):
            a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
            if bias:
                a, b = load_f32(bias + place), load_f32(bias + place + 64)
                c, d = load_f32(bias + place + 128), load_f32(bias + place + 192)
            for y in range(first_y, stop_y):
                line = source + ((top + y * step_down) * width + left) * pixel + place
                filters = args.filters + y * kernel_width * pixel + place
                for x in range(first_x, stop_x):
                    tap, weight = line + x * step_right * pixel, filters + x * pixel
                    a = fused_multiply_add(load_f32(tap), load_f32(weight), a)
                    b = fused_multiply_add(load_f32(tap + 64), load_f32(weight + 64), b)
                    c = fused_multiply_add(load_f32(tap + 128), load_f32(weight + 128), c)
                    d = fused_multiply_add(load_f32(tap + 192), load_f32(weight + 192), d)
            found = target + column * pixel + place
            store_f32(found, _finished(args, a))
            store_f32(found + 64, _finished(args, b))
            store_f32(found + 128, _finished(args, c))
            store_f32(found + 192, _finished(args, d))
        for channel in range(whole, channels, 16):
            rest, place = channels - channel, channel * 4
            a = load_f32_first(bias + place, rest) if bias else zero_f32()
            for y in range(first_y, stop_y):
                line = source + ((top + y * step_down) * width + left) * pixel + place
                filters = args.filters + y * kernel_width * pixel + place
                for x in range(first_x, stop_x):
                    value = load_f32_first(line + x * step_right * pixel, rest)
                    a = fused_multiply_add(value, load_f32_first(filters + x * pixel, rest), a)
            store_f32_first(target + column * pixel + place, _finished(args, a), rest)


@task
def depthwise(args: Depthwise, thread: int, threads: int) -> None:
    """activation(Conv(X, W, B)) of channels-last X (N, H, W, C) with filters (KH, KW, C).

    Arguments: addresses of X, the filters, B or 0, and Y; samples, channels; X's height and width, the kernel's, Y's, strides,
    dilations, padding at the top and left; activation (none, LeakyRelu or Clip) and its
    two parameters.
    """
    rows = args.rows
    lines = args.samples * rows
    for line in range(lines * thread // threads, lines * (thread + 1) // threads):
        _row(args, line // rows, line % rows)
