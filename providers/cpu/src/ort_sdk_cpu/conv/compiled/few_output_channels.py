"""Convolutions of channels-last pictures into a few channels, the last of most networks that make pictures.

A window's columns lie side by side, so that each row of a window is one product of vectors; four neighbours are summed at once.
"""

from __future__ import annotations

from ort_sdk_cpu.conv.arguments.few_output_channels import FewOutputChannels
from ort_sdk_cpu.conv.microkernels.epilogue import finished
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, reduce_add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32_first, write_f32

__all__ = ["few_output_channels"]


@inner
def _one(args: FewOutputChannels, source: int, weights: int, first: int, last: int, run: int) -> float:
    """Sum of a window.

    Args:
        args: of the task.
        source: address of its first row's first number.
        weights: address of those numbers' weights.
        first: row of the window to begin with.
        last: that to end before.
        run: numbers of a row.
    """
    pitch, width = args.width * args.channels * 4, args.taps_right * args.channels * 4
    total = zero_f32()
    for row in range(first, last):
        x, w = source + row * pitch, weights + row * width
        for element in range(0, run, 16):
            left = run - element
            total = fused_multiply_add(load_f32_first(x + element * 4, left), load_f32_first(w + element * 4, left), total)
    found: float = reduce_add(total)
    return found


@inner
def _four(
    args: FewOutputChannels, source: int, weights: int, first: int, last: int, run: int
) -> tuple[float, float, float, float]:
    """Sums of a window and the three beside it."""
    pitch, width = args.width * args.channels * 4, args.taps_right * args.channels * 4
    step = args.step_right * args.channels * 4
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole, left = run // 16 * 64, run % 16
    for row in range(first, last):
        x, w = source + row * pitch, weights + row * width
        for place in range(0, whole, 64):
            weight = load_f32(w + place)
            a = fused_multiply_add(load_f32(x + place), weight, a)
            b = fused_multiply_add(load_f32(x + place + step), weight, b)
            c = fused_multiply_add(load_f32(x + place + 2 * step), weight, c)
            d = fused_multiply_add(load_f32(x + place + 3 * step), weight, d)
        if left > 0:
            weight, rest = load_f32_first(w + whole, left), x + whole
            a = fused_multiply_add(load_f32_first(rest, left), weight, a)
            b = fused_multiply_add(load_f32_first(rest + step, left), weight, b)
            c = fused_multiply_add(load_f32_first(rest + 2 * step, left), weight, c)
            d = fused_multiply_add(load_f32_first(rest + 3 * step, left), weight, d)
    return reduce_add(a), reduce_add(b), reduce_add(c), reduce_add(d)


@inner
def _row(args: FewOutputChannels, output: int, picture: int, line: int, out: int) -> None:
    """Sums of one channel along a row.

    Args:
        args: of the task.
        output: the channel.
        picture: address of the picture.
        line: its row that windows begin in, which may lie above it.
        out: address of the row's first pixel.
    """
    height, width, pixel = args.height, args.width, args.channels * 4
    rows, columns, step = args.taps_down, args.taps_right, args.step_right
    outputs, count = args.outputs, args.columns
    first, last = max(0, -line), min(rows, height - line)
    weights = args.weights + output * rows * columns * pixel
    shift = read_f32(args.bias + output * 4) if args.bias else 0.0
    column = 0
    while column < count:
        place = column * step - args.left
        target, source = out + (column * outputs + output) * 4, picture + (line * width + place) * pixel
        if place >= 0 and column + 4 <= count and place + 3 * step + columns <= width:
            a, b, c, d = _four(args, source, weights, first, last, columns * pixel // 4)
            write_f32(target, a + shift)
            write_f32(target + outputs * 4, b + shift)
            write_f32(target + outputs * 8, c + shift)
            write_f32(target + outputs * 12, d + shift)
            column += 4
        else:
            begin, end = max(0, -place), min(columns, width - place)
            offset, run = begin * pixel, max(0, end - begin) * pixel // 4
            write_f32(target, _one(args, source + offset, weights + offset, first, last, run) + shift)
            column += 1


@task
def few_output_channels(args: FewOutputChannels, thread: int, threads: int) -> None:
    """A convolution with bias, addend and activation.

    Arguments: addresses of x, weights (output channels, rows of taps, columns of taps, channels), bias (or 0), addend (or 0), the
    output and none; samples, height, width, channels, output channels, height and width of the output, rows and columns of taps,
    steps, rows of zeros above, columns of zeros to the left, and none; activation with its numbers, and what follows it, as for
    ``winograd``.
    """
    outputs, rows = args.outputs, args.rows
    jobs, line_bytes = args.samples * rows, args.columns * outputs * 4
    picture_bytes = args.height * args.width * args.channels * 4
    for job in range(jobs * thread // threads, jobs * (thread + 1) // threads):
        picture, out = args.x + job // rows * picture_bytes, args.out + job * line_bytes
        for output in range(outputs):
            _row(args, output, picture, job % rows * args.step_down - args.top, out)
        for place in range(0, line_bytes, 64):
            left = (line_bytes - place) // 4
            value = finished(args, job * line_bytes + place, left, load_f32_first(out + place, left))
            store_f32_first(out + place, value, left)
