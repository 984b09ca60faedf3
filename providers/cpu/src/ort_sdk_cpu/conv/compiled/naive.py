"""Convolutions of few multiplications, and transposed ones, by loops over taps: NCHW, up to three spatial axes.

X is copied between zeros first, so that the loops have no edges. Of a transposed convolution, zeros are between elements, too,
which makes it an ordinary one by taps from the last to the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.conv.arguments.naive import NaiveConv
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, multiply, select_less, splat_f32, zero_f32
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, load_f32_strided, read_f32, store_f32, store_f32_masked, write_f32

__all__ = ["naive_conv"]


@inline
def _clear(work: int, count: int) -> None:
    for element in range(0, count, 16):
        store_f32(work + element * 4, zero_f32())


@inline
def _scatter(args: NaiveConv, x: int, work: int) -> None:
    """Put the elements of a sample between zeros, at their distances; those that a negative padding cuts off are left out."""
    channels, depth, height, width = args.channels, args.size.depth, args.size.height, args.size.width
    pad, step, extent = args.begin.width, args.spread.width, args.span.width
    for line in range(channels * depth * height):
        channel, d = line // (depth * height), line // height % depth * args.spread.depth + args.begin.depth
        h = line % height * args.spread.height + args.begin.height
        if 0 <= d < args.span.depth and 0 <= h < args.span.height:
            source = x + line * width * 4
            target = work + ((channel * args.span.depth + d) * args.span.height + h) * extent * 4
            for column in range(width):
                address = column * step + pad
                if 0 <= address < extent:
                    write_f32(target + address * 4, read_f32(source + column * 4))


@inline
def _bias(args: NaiveConv, output: int) -> Any:
    bias = args.bias
    return splat_f32(read_f32(bias + output * 4) if bias else np.float32(0))


@inline
def _leaky_relu(x: Any, slope: float) -> Any:
    """LeakyRelu; infinity below zero, too, becomes zero by a slope of zero."""
    below = multiply(x, splat_f32(slope)) if slope != np.float32(0) else zero_f32()
    return select_less(x, zero_f32(), below, x)


@inline
def _four_outputs(args: NaiveConv, work: int, weight: int, first: int, left: int, address: int) -> None:
    """Up to 16 neighbours in a row of up to four outputs.

    Args:
        args: of the task.
        work: where the windows of the group's first channel begin.
        weight: of the first output.
        first: number of that.
        left: outputs there are.
        address: of what is written to the first.
    """
    channels, taps_h, taps_w = args.channels // args.groups, args.kernel.height, args.kernel.width
    lines, line, step = args.span.depth * args.span.height, args.span.width * 4, args.stride.width * 4
    of_output, of_channel, of_tap = args.output_bytes, args.channel_bytes, args.tap_bytes
    # Four output channels share each load of X. Those that are not there are the last one once more, and write the same to it.
    second, third, fourth = min(1, left - 1), min(2, left - 1), min(3, left - 1)
    volume = args.result.depth * args.result.height * args.result.width
    # Vectors of neighbouring results of a row: of few channels, vectors of channels would be mostly empty.
    for column in range(0, args.result.width, 16):
        count = min(args.result.width - column, 16)
        a, b = _bias(args, first), _bias(args, first + second)
        c, d = _bias(args, first + third), _bias(args, first + fourth)
        for channel in range(channels):
            for outer in range(args.kernel.depth * taps_h):
                row = outer // taps_h * args.dilation.depth * args.span.height + outer % taps_h * args.dilation.height
                source = work + (channel * lines + row) * line + column * step
                factors = weight + channel * of_channel + outer * taps_w * of_tap
                for tap in range(taps_w):
                    at = source + tap * args.dilation.width * 4
                    # With stride 1 neighbours are contiguous; else they are gathered.
                    value = load_f32(at) if step == 4 else load_f32_strided(at, step, count)
                    factor = factors + tap * of_tap
                    a = fused_multiply_add(value, broadcast_f32(factor), a)
                    b = fused_multiply_add(value, broadcast_f32(factor + second * of_output), b)
                    c = fused_multiply_add(value, broadcast_f32(factor + third * of_output), c)
                    d = fused_multiply_add(value, broadcast_f32(factor + fourth * of_output), d)
        target, slope = address + column * 4, args.slope
        store_f32_masked(target, _leaky_relu(a, slope), count)
        store_f32_masked(target + second * volume * 4, _leaky_relu(b, slope), count)
        store_f32_masked(target + third * volume * 4, _leaky_relu(c, slope), count)
        store_f32_masked(target + fourth * volume * 4, _leaky_relu(d, slope), count)


@inline
def _group(args: NaiveConv, work: int, sample: int, group: int) -> None:
    per_group, depths, heights = args.outputs // args.groups, args.result.depth, args.result.height
    source = work + group * (args.channels // args.groups) * args.span.depth * args.span.height * (args.span.width * 4)
    for output in range(0, per_group, 4):
        weight = args.weights + args.first_tap_bytes + group * args.group_bytes + output * args.output_bytes
        first = group * per_group + output
        for row in range(depths * heights):
            d, h = row // heights * args.stride.depth, row % heights * args.stride.height
            lines = d * args.span.height + h
            written = ((sample * args.outputs + first) * depths * heights + row) * args.result.width
            address = args.out + written * 4
            _four_outputs(args, source + lines * args.span.width * 4, weight, first, per_group - output, address)


@task
def naive_conv(args: NaiveConv, thread: int, threads: int) -> None:
    """LeakyRelu(Conv(X, W) + B); each thread has a range of the samples."""
    count = args.channels * args.span.depth * args.span.height * args.span.width
    work, samples = args.work + thread * (count + 16) * 4, args.samples
    sample_bytes = args.channels * args.size.depth * args.size.height * args.size.width * 4
    for sample in range(samples * thread // threads, samples * (thread + 1) // threads):
        _clear(work, count)
        _scatter(args, args.x + sample * sample_bytes, work)
        # All groups read the one copy of the sample.
        for group in range(args.groups):
            _group(args, work, sample, group)
