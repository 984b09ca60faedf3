"""Convolutions of NCHW images of few channels into NHWC data: the first of most networks for images.

Vectors are of output channels, and each input is broadcast to them. The layout changes on the way, without a copy of the image.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.conv.arguments.few_input_channels import FewInputChannels
from ort_sdk_cpu.conv.microkernels.epilogue import activated, finished
from ort_sdk_cpu.conv.microkernels.pointwise import copy_line
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, zero_f32
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, load_f32_masked, store_f32, store_f32_masked
from ort_sdk_cpu.simd.synchronization import finish_jobs, next_job

__all__ = ["few_input_channels"]

# 8 pixels of two vectors of channels are 16 accumulators, which leaves registers for weights with AVX-512, and with AVX2 for one
# vector; and enough independent chains to hide the latency of a multiply-add on two ports.
_PIXELS = 8


@inline
def _copy_lines(args: FewInputChannels, sample: int, row: int, lines: int, length: int) -> None:
    """The lines that a row of the output reads, channel by channel, between zeros."""
    height, width, channels, taps = args.height, args.width, args.channels, args.taps_down
    top, left = row * args.step_down - args.top, args.left
    for channel in range(channels):
        plane = args.x + (sample * channels + channel) * height * width * 4
        for tap in range(taps):
            line = top + tap
            source = plane + line * width * 4 if 0 <= line < height else 0
            # Once for each row of the output: the copy has the zeros around the image, so that the loops over taps have no
            # edges.
            copy_line(source, width, left, lines + (channel * taps + tap) * length * 4, length)


@inline
def _finish(args: FewInputChannels, offset: int, left: int, value: Any) -> None:
    """All that may be done to a sum."""
    store_f32_masked(args.out + offset, finished(args, offset, left, value), left)


@inline
def _store_pixels(
    args: FewInputChannels, offset: int, left: int, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> None:
    """One vector of eight pixels."""
    pixel = args.outputs * 4
    is_plain = args.added == 0 and args.epilogue.last == 0 and args.epilogue.is_scaled == 0
    # Inlined eight times without the tests of a full epilogue: most first convolutions have ReLU or nothing.
    if is_plain and left >= 16:
        activation, first, second = args.epilogue.activation, args.epilogue.alpha, args.epilogue.beta
        out = args.out + offset
        store_f32(out, activated(a, activation, first, second))
        store_f32(out + pixel, activated(b, activation, first, second))
        store_f32(out + 2 * pixel, activated(c, activation, first, second))
        store_f32(out + 3 * pixel, activated(d, activation, first, second))
        store_f32(out + 4 * pixel, activated(e, activation, first, second))
        store_f32(out + 5 * pixel, activated(f, activation, first, second))
        store_f32(out + 6 * pixel, activated(g, activation, first, second))
        store_f32(out + 7 * pixel, activated(h, activation, first, second))
    else:
        _finish(args, offset, left, a)
        _finish(args, offset + pixel, left, b)
        _finish(args, offset + 2 * pixel, left, c)
        _finish(args, offset + 3 * pixel, left, d)
        _finish(args, offset + 4 * pixel, left, e)
        _finish(args, offset + 5 * pixel, left, f)
        _finish(args, offset + 6 * pixel, left, g)
        _finish(args, offset + 7 * pixel, left, h)


@inline
def _one_vector(args: FewInputChannels, lines: int, length: int, weights: int, offset: int, channel: int) -> None:
    """Sixteen channels of neighbouring pixels."""
    outputs, step = args.outputs, args.step_right * 4
    start, left = zero_f32(), outputs - channel
    if args.bias:
        start = load_f32_masked(args.bias + channel * 4, left)
    a, b, c, d, e, f, g, h = start, start, start, start, start, start, start, start
    taps, row = args.taps_right, (outputs + 15) // 16 * 64
    for line in range(args.channels * args.taps_down):
        address = lines + line * length * 4
        for _ in range(taps):
            weight = load_f32(weights)
            a = fused_multiply_add(broadcast_f32(address), weight, a)
            b = fused_multiply_add(broadcast_f32(address + step), weight, b)
            c = fused_multiply_add(broadcast_f32(address + 2 * step), weight, c)
            d = fused_multiply_add(broadcast_f32(address + 3 * step), weight, d)
            e = fused_multiply_add(broadcast_f32(address + 4 * step), weight, e)
            f = fused_multiply_add(broadcast_f32(address + 5 * step), weight, f)
            g = fused_multiply_add(broadcast_f32(address + 6 * step), weight, g)
            h = fused_multiply_add(broadcast_f32(address + 7 * step), weight, h)
            address += 4
            weights += row
    _store_pixels(args, offset, left, a, b, c, d, e, f, g, h)


@inline
def _two_vectors(args: FewInputChannels, lines: int, length: int, weights: int, offset: int, channel: int) -> None:
    """Thirty-two channels of neighbouring pixels: elements of the image are broadcast once for both vectors."""
    outputs, step = args.outputs, args.step_right * 4
    a, b, left = zero_f32(), zero_f32(), outputs - channel - 16
    if args.bias:
        a = load_f32(args.bias + channel * 4)
        b = load_f32_masked(args.bias + channel * 4 + 64, left)
    a0, a1, a2, a3, a4, a5, a6, a7 = a, a, a, a, a, a, a, a
    b0, b1, b2, b3, b4, b5, b6, b7 = b, b, b, b, b, b, b, b
    taps, row = args.taps_right, (outputs + 15) // 16 * 64
    for line in range(args.channels * args.taps_down):
        address = lines + line * length * 4
        for _ in range(taps):
            first, second = load_f32(weights), load_f32(weights + 64)
            x = broadcast_f32(address)
            a0, b0 = fused_multiply_add(x, first, a0), fused_multiply_add(x, second, b0)
            x = broadcast_f32(address + step)
            a1, b1 = fused_multiply_add(x, first, a1), fused_multiply_add(x, second, b1)
            x = broadcast_f32(address + 2 * step)
            a2, b2 = fused_multiply_add(x, first, a2), fused_multiply_add(x, second, b2)
            x = broadcast_f32(address + 3 * step)
            a3, b3 = fused_multiply_add(x, first, a3), fused_multiply_add(x, second, b3)
            x = broadcast_f32(address + 4 * step)
            a4, b4 = fused_multiply_add(x, first, a4), fused_multiply_add(x, second, b4)
            x = broadcast_f32(address + 5 * step)
            a5, b5 = fused_multiply_add(x, first, a5), fused_multiply_add(x, second, b5)
            x = broadcast_f32(address + 6 * step)
            a6, b6 = fused_multiply_add(x, first, a6), fused_multiply_add(x, second, b6)
            x = broadcast_f32(address + 7 * step)
            a7, b7 = fused_multiply_add(x, first, a7), fused_multiply_add(x, second, b7)
            address += 4
            weights += row
    _store_pixels(args, offset, 16, a0, a1, a2, a3, a4, a5, a6, a7)
    _store_pixels(args, offset + 64, left, b0, b1, b2, b3, b4, b5, b6, b7)


@task
def few_input_channels(args: FewInputChannels, thread: int, threads: int) -> None:
    """A convolution with epilogue; at least 8 columns of output. A job is a row of the output; threads steal jobs."""
    outputs, rows, columns = args.outputs, args.rows, args.columns
    length = ((columns - 1) * args.step_right + args.taps_right + 15) // 16 * 16
    lines = args.work + thread * args.work_bytes
    jobs, counters = args.samples * rows, args.jobs.first
    job, tried = next_job(counters, jobs, thread, threads, 0)
    while job >= 0:
        _copy_lines(args, job // rows, job % rows, lines, length)
        for channel in range(0, outputs, 32):
            weights = args.weights + channel * 4
            for first in range(0, columns, _PIXELS):
                # The last pixels of a row are computed with some before them once more, instead of by a tile of their own.
                column = min(first, columns - _PIXELS)
                offset = ((job * columns + column) * outputs + channel) * 4
                address = lines + column * args.step_right * 4
                # Two vectors of channels share each broadcast, as loads would be the bottleneck of one.
                if outputs - channel > 16:
                    _two_vectors(args, address, length, weights, offset, channel)
                else:
                    _one_vector(args, address, length, weights, offset, channel)
        job, tried = next_job(counters, jobs, thread, threads, tried)
    finish_jobs(counters, threads)
