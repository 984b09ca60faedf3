"""Convolutions of few multiplications, and transposed ones: all arrays row-major, up to three spatial axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, read_f32, store_f32, store_f32_first, write_f32
from ort_sdk_cpu.simd.remainder import load_f32_steps, select_less

__all__ = ["small_convolution"]


@inner
def _clear(work: int, count: int) -> None:
    for element in range(0, count, 16):
        store_f32(work + element * 4, zero_f32())


@inner
def _spread(record: int, x: int, work: int) -> None:
    """Put the elements of a sample at their distances into zeros; those of a negative padding are left out."""
    channels, depth, height, width = argument(record, 6), argument(record, 9), argument(record, 10), argument(record, 11)
    pad, step, extent = argument(record, 14), argument(record, 17), argument(record, 20)
    for line in range(channels * depth * height):
        channel, d = line // (depth * height), line // height % depth * argument(record, 15) + argument(record, 12)
        h = line % height * argument(record, 16) + argument(record, 13)
        if 0 <= d < argument(record, 18) and 0 <= h < argument(record, 19):
            source = x + line * width * 4
            target = work + ((channel * argument(record, 18) + d) * argument(record, 19) + h) * extent * 4
            for column in range(width):
                place = column * step + pad
                if 0 <= place < extent:
                    write_f32(target + place * 4, read_f32(source + column * 4))


@inner
def _bias(record: int, output: int) -> Any:
    bias = argument(record, 2)
    return splat_f32(read_f32(bias + output * 4) if bias else np.float32(0))


@inner
def _bent(x: Any, slope: float) -> Any:
    """What is below zero multiplied by a slope; infinity, too, becomes zero by a slope of zero."""
    below = multiply(x, splat_f32(slope)) if slope != np.float32(0) else zero_f32()
    return select_less(x, zero_f32(), below, x)


@inner
def _four_outputs(record: int, work: int, weight: int, first: int, left: int, place: int) -> None:
    """Up to 16 neighbours in a row of up to four outputs.

    Args:
        record: of the task.
        work: where the windows of the group's first channel begin.
        weight: of the first output.
        first: number of that.
        left: outputs there are.
        place: of what is written to the first.
    """
    channels, taps_h, taps_w = argument(record, 6) // argument(record, 8), argument(record, 22), argument(record, 23)
    lines, line, step = argument(record, 18) * argument(record, 19), argument(record, 20) * 4, argument(record, 29) * 4
    apart, of_channel, of_tap = argument(record, 33), argument(record, 35), argument(record, 36)
    second, third, fourth = min(1, left - 1), min(2, left - 1), min(3, left - 1)
    volume = argument(record, 24) * argument(record, 25) * argument(record, 26)
    for column in range(0, argument(record, 26), 16):
        count = min(argument(record, 26) - column, 16)
        a, b = _bias(record, first), _bias(record, first + second)
        c, d = _bias(record, first + third), _bias(record, first + fourth)
        for channel in range(channels):
            for outer in range(argument(record, 21) * taps_h):
                row = outer // taps_h * argument(record, 30) * argument(record, 19) + outer % taps_h * argument(record, 31)
                source = work + (channel * lines + row) * line + column * step
                factors = weight + channel * of_channel + outer * taps_w * of_tap
                for tap in range(taps_w):
                    at = source + tap * argument(record, 32) * 4
                    value = load_f32(at) if step == 4 else load_f32_steps(at, step, count)
                    factor = factors + tap * of_tap
                    a = fused_multiply_add(value, broadcast_f32(factor), a)
                    b = fused_multiply_add(value, broadcast_f32(factor + second * apart), b)
                    c = fused_multiply_add(value, broadcast_f32(factor + third * apart), c)
                    d = fused_multiply_add(value, broadcast_f32(factor + fourth * apart), d)
        target, slope = place + column * 4, number(record, 38)
        store_f32_first(target, _bent(a, slope), count)
        store_f32_first(target + second * volume * 4, _bent(b, slope), count)
        store_f32_first(target + third * volume * 4, _bent(c, slope), count)
        store_f32_first(target + fourth * volume * 4, _bent(d, slope), count)


@inner
def _group(record: int, work: int, sample: int, group: int) -> None:
    per_group, depths, heights = argument(record, 7) // argument(record, 8), argument(record, 24), argument(record, 25)
    source = work + group * (argument(record, 6) // argument(record, 8)) * argument(record, 18) * argument(record, 19) * (
        argument(record, 20) * 4
    )
    for output in range(0, per_group, 4):
        weight = argument(record, 1) + argument(record, 37) + group * argument(record, 34) + output * argument(record, 33)
        first = group * per_group + output
        for row in range(depths * heights):
            d, h = row // heights * argument(record, 27), row % heights * argument(record, 28)
            lines = d * argument(record, 19) + h
            written = ((sample * argument(record, 7) + first) * depths * heights + row) * argument(record, 26)
            place = argument(record, 3) + written * 4
            _four_outputs(record, source + lines * argument(record, 20) * 4, weight, first, per_group - output, place)


@task
def small_convolution(record: int, part: int, parts: int) -> None:
    """X * W + B, of which what is below zero is multiplied by a slope.

    Arguments: addresses of X, W, B or 0, Y, and of working memory (for each part, X's channels with what windows span, and 16
    numbers more); samples, X's channels, Y's channels, groups; three sizes of X, where X begins in what windows span, its
    elements' distances there, what windows span, the kernel's, Y's, strides, dilations; bytes of W from one output to the next,
    from group to group, from channel to channel, and from tap to tap, and those before the first tap; the slope.
    """
    count = argument(record, 6) * argument(record, 18) * argument(record, 19) * argument(record, 20)
    work, samples = argument(record, 4) + part * (count + 16) * 4, argument(record, 5)
    sample_bytes = argument(record, 6) * argument(record, 9) * argument(record, 10) * argument(record, 11) * 4
    for sample in range(samples * part // parts, samples * (part + 1) // parts):
        _clear(work, count)
        _spread(record, argument(record, 0) + sample * sample_bytes, work)
        for group in range(argument(record, 8)):
            _group(record, work, sample, group)
