"""Softmax and normalizations along rows of float32, and of pictures' channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    splat_f32,
    square_root,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_of_negative
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32, store_f32_first
from ort_sdk_cpu.simd.remainder import first_lanes, load_f32_first_or

__all__ = [
    "layer_normalization",
    "normalize_groups",
    "normalize_pixels",
    "normalize_planes",
    "rms_normalization",
    "softmax",
    "softmax_row",
]

_LOWEST = np.float32(-np.inf)
_ZERO = np.float32(0)
_ONE = np.float32(1)


@inner
def _largest(x: int, width: int) -> Any:
    lowest = splat_f32(_LOWEST)
    first, second = lowest, lowest
    whole = width // 32 * 32
    for place in range(0, whole * 4, 128):
        first, second = maximum(load_f32(x + place), first), maximum(load_f32(x + place + 64), second)
    for element in range(whole, width, 16):
        first = maximum(load_f32_first_or(x + element * 4, width - element, lowest), first)
    return reduce_max(maximum(first, second))


@inner
def softmax_row(x: int, out: int, width: int) -> None:
    """Softmax of ``width`` numbers at x, which may be out."""
    shift, total, whole = splat_f32(_largest(x, width)), zero_f32(), width // 16 * 64
    for place in range(0, whole, 64):
        power = exp_of_negative(subtract(load_f32(x + place), shift))
        total = add(total, power)
        store_f32(out + place, power)
    rest = width % 16
    if rest:
        power = exp_of_negative(subtract(load_f32_first_or(x + whole, rest, shift), shift))
        total = add(total, first_lanes(power, rest))
        store_f32_first(out + whole, power, rest)
    factor = splat_f32(_ONE / reduce_add(total))
    for place in range(0, whole, 64):
        store_f32(out + place, multiply(load_f32(out + place), factor))
    if rest:
        store_f32_first(out + whole, multiply(load_f32_first(out + whole, rest), factor), rest)


@task
def softmax(record: int, part: int, parts: int) -> None:
    """(x, out, rows, width)."""
    rows, width = argument(record, 2), argument(record, 3)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        softmax_row(argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4, width)


@inner
def _sum(x: int, width: int) -> Any:
    first, second, third, fourth = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole = width // 64 * 64
    for place in range(0, whole * 4, 256):
        first, second = add(first, load_f32(x + place)), add(second, load_f32(x + place + 64))
        third, fourth = add(third, load_f32(x + place + 128)), add(fourth, load_f32(x + place + 192))
    for element in range(whole, width, 16):
        first = add(first, load_f32_first(x + element * 4, width - element))
    return reduce_add(add(add(first, second), add(third, fourth)))


@inner
def _sum_of_squares(x: int, width: int, mean: float) -> Any:
    """Of the differences from the mean."""
    shift = splat_f32(mean)
    first, second = zero_f32(), zero_f32()
    whole = width // 32 * 32
    for place in range(0, whole * 4, 128):
        here, there = subtract(load_f32(x + place), shift), subtract(load_f32(x + place + 64), shift)
        first, second = fused_multiply_add(here, here, first), fused_multiply_add(there, there, second)
    for element in range(whole, width, 16):
        here = subtract(load_f32_first_or(x + element * 4, width - element, shift), shift)
        first = fused_multiply_add(here, here, first)
    return reduce_add(add(first, second))


@inner
def _sum_of_rows(x: int, skip: int, bias: int, total: int, width: int) -> None:
    """X + skip + bias, where there is one."""
    whole = width // 16 * 64
    for place in range(0, whole, 64):
        value = add(load_f32(x + place), load_f32(skip + place))
        store_f32(total + place, add(value, load_f32(bias + place)) if bias else value)
    rest = width % 16
    if rest:
        value = add(load_f32_first(x + whole, rest), load_f32_first(skip + whole, rest))
        store_f32_first(total + whole, add(value, load_f32_first(bias + whole, rest)) if bias else value, rest)


@inner
def _scaled(x: int, out: int, width: int, mean: float, factor: float, scale: int, shift: int) -> None:
    """(x - mean) * factor * scale + shift."""
    means, factors, whole = splat_f32(mean), splat_f32(factor), width // 16 * 64
    for place in range(0, whole, 64):
        value = multiply(subtract(load_f32(x + place), means), factors)
        other = load_f32(shift + place) if shift else zero_f32()
        store_f32(out + place, fused_multiply_add(value, load_f32(scale + place), other))
    rest = width % 16
    if rest:
        value = multiply(subtract(load_f32_first(x + whole, rest), means), factors)
        other = load_f32_first(shift + whole, rest) if shift else zero_f32()
        store_f32_first(out + whole, fused_multiply_add(value, load_f32_first(scale + whole, rest), other), rest)


@inner
def _normalized(centred: bool, record: int, part: int, parts: int) -> None:
    skip, total, scale, shift = argument(record, 1), argument(record, 3), argument(record, 5), argument(record, 6)
    rows, width, epsilon = argument(record, 7), argument(record, 8), number(record, 9)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        start = row * width * 4
        x, out = argument(record, 0) + start, argument(record, 4) + start
        if skip:
            _sum_of_rows(x, skip + start, argument(record, 2), total + start, width)
            x = total + start
        mean = _sum(x, width) / np.float32(width) if centred else _ZERO
        variance = _sum_of_squares(x, width, mean) / np.float32(width)
        _scaled(x, out, width, mean, _ONE / np.sqrt(variance + epsilon), scale, shift)


@task
def layer_normalization(record: int, part: int, parts: int) -> None:
    """(x, skip, bias, total, out, scale, shift, rows, width, epsilon): total = x + skip + bias is what is normalized.

    Without a skip (0), x is; bias and shift may be 0, total may be out.
    """
    _normalized(True, record, part, parts)


@task
def rms_normalization(record: int, part: int, parts: int) -> None:
    """The same without subtracting the mean."""
    _normalized(False, record, part, parts)


@inner
def _shifted_and_scaled(x: int, out: int, width: int, mean: Any, factor: Any, shift: Any) -> None:
    """(x - mean) * factor + shift."""
    whole, rest = width // 16 * 64, width % 16
    for place in range(0, whole, 64):
        store_f32(out + place, fused_multiply_add(subtract(load_f32(x + place), mean), factor, shift))
    if rest:
        value = subtract(load_f32_first(x + whole, rest), mean)
        store_f32_first(out + whole, fused_multiply_add(value, factor, shift), rest)


@task
def normalize_planes(record: int, part: int, parts: int) -> None:
    """Each channel of each sample by its own mean and variance.

    (x, out, scale, shift, samples, channels, pixels, epsilon): pixels of a channel lie side by side.
    """
    channels, width, epsilon = argument(record, 5), argument(record, 6), number(record, 7)
    rows = argument(record, 4) * channels
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, place = argument(record, 0) + row * width * 4, row % channels * 4
        mean = _sum(x, width) / np.float32(width)
        variance = _sum_of_squares(x, width, mean) / np.float32(width)
        factor = read_f32(argument(record, 2) + place) / np.sqrt(variance + epsilon)
        shift = splat_f32(read_f32(argument(record, 3) + place))
        _shifted_and_scaled(x, argument(record, 1) + row * width * 4, width, splat_f32(mean), splat_f32(factor), shift)


@task
def normalize_groups(record: int, part: int, parts: int) -> None:
    """Each group of channels of each sample by its own mean and variance.

    (x, out, scale, shift, samples, groups, channels of a group, pixels, channels that share a scale and a shift, epsilon).
    """
    groups, count, pixels, shared = argument(record, 5), argument(record, 6), argument(record, 7), argument(record, 8)
    rows, width = argument(record, 4) * groups, count * pixels
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * width * 4, argument(record, 1) + row * width * 4
        mean = _sum(x, width) / np.float32(width)
        root = np.sqrt(_sum_of_squares(x, width, mean) / np.float32(width) + number(record, 9))
        for channel in range(count):
            place, start = (row % groups * count + channel) // shared * 4, channel * pixels * 4
            factor, shift = read_f32(argument(record, 2) + place) / root, read_f32(argument(record, 3) + place)
            _shifted_and_scaled(x + start, out + start, pixels, splat_f32(mean), splat_f32(factor), splat_f32(shift))


@inner
def _normalize_vector(record: int, x: int, out: int, channel: int, left: int) -> None:
    """All pixels of up to 16 channels."""
    pixels, step = argument(record, 6), argument(record, 5) * 4
    count, total, squares = splat_f32(np.float32(pixels)), zero_f32(), zero_f32()
    for place in range(x, x + pixels * step, step):
        total = add(total, load_f32_first(place, left))
    mean = divide(total, count)
    for place in range(x, x + pixels * step, step):
        difference = subtract(load_f32_first(place, left), mean)
        squares = fused_multiply_add(difference, difference, squares)
    root = square_root(add(divide(squares, count), splat_f32(number(record, 7))))
    factor = divide(load_f32_first(argument(record, 2) + channel * 4, left), root)
    shift = load_f32_first(argument(record, 3) + channel * 4, left)
    for pixel in range(pixels):
        value = multiply(subtract(load_f32_first(x + pixel * step, left), mean), factor)
        store_f32_first(out + pixel * step, add(value, shift), left)


@task
def normalize_pixels(record: int, part: int, parts: int) -> None:
    """The same arguments: channels of a pixel lie side by side."""
    channels = argument(record, 5)
    vectors = (channels + 15) // 16
    units = argument(record, 4) * vectors
    for unit in range(units * part // parts, units * (part + 1) // parts):
        channel = unit % vectors * 16
        place = (unit // vectors * argument(record, 6) * channels + channel) * 4
        _normalize_vector(record, argument(record, 0) + place, argument(record, 1) + place, channel, channels - channel)
