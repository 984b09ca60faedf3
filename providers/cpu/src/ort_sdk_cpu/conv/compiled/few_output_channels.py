"""Convolutions of NHWC images into a few channels: the last of most networks that make images.

The columns of a window are contiguous in NHWC, so that each row of a window is a dot product. Vectors run along it: vectors of
output channels would be mostly empty.
"""

from __future__ import annotations

from ort_sdk_cpu.conv.arguments.few_output_channels import FewOutputChannels
from ort_sdk_cpu.conv.microkernels.epilogue import finished
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, reduce_add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, read_f32, store_f32_masked, write_f32

__all__ = ["few_output_channels"]


@inline
def _one(args: FewOutputChannels, source: int, weights: int, first: int, last: int, run: int) -> float:
    """Sum of a window.

    Args:
        args: of the task.
        source: address of its first row's first element.
        weights: address of those elements' weights.
        first: row of the window to begin with.
        last: that to end before.
        run: elements of a row.
    """
    pitch, width = args.width * args.channels * 4, args.taps_right * args.channels * 4
    total = zero_f32()
    for row in range(first, last):
        x, w = source + row * pitch, weights + row * width
        for element in range(0, run, 16):
            left = run - element
            total = fused_multiply_add(load_f32_masked(x + element * 4, left), load_f32_masked(w + element * 4, left), total)
    found: float = reduce_add(total)
    return found


@inline
def _four(
    args: FewOutputChannels, source: int, weights: int, first: int, last: int, run: int
) -> tuple[float, float, float, float]:
    """Sums of a window and the three beside it."""
    pitch, width = args.width * args.channels * 4, args.taps_right * args.channels * 4
    step = args.step_right * args.channels * 4
    # Four windows side by side share each load of weights, and are four independent chains of sums.
    a, b, c, d = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    whole, left = run // 16 * 64, run % 16
    for row in range(first, last):
        x, w = source + row * pitch, weights + row * width
        for address in range(0, whole, 64):
            weight = load_f32(w + address)
            a = fused_multiply_add(load_f32(x + address), weight, a)
            b = fused_multiply_add(load_f32(x + address + step), weight, b)
            c = fused_multiply_add(load_f32(x + address + 2 * step), weight, c)
            d = fused_multiply_add(load_f32(x + address + 3 * step), weight, d)
        if left > 0:
            weight, remainder = load_f32_masked(w + whole, left), x + whole
            a = fused_multiply_add(load_f32_masked(remainder, left), weight, a)
            b = fused_multiply_add(load_f32_masked(remainder + step, left), weight, b)
            c = fused_multiply_add(load_f32_masked(remainder + 2 * step, left), weight, c)
            d = fused_multiply_add(load_f32_masked(remainder + 3 * step, left), weight, d)
    return reduce_add(a), reduce_add(b), reduce_add(c), reduce_add(d)


@inline
def _row(args: FewOutputChannels, output: int, image: int, line: int, out: int) -> None:
    """Sums of one channel along a row.

    Args:
        args: of the task.
        output: the channel.
        image: address of the image.
        line: its row that windows begin in, which may be above it.
        out: address of the row's first pixel.
    """
    height, width, pixel = args.height, args.width, args.channels * 4
    rows, columns, step = args.taps_down, args.taps_right, args.step_right
    outputs, count = args.outputs, args.columns
    # Rows of windows above and below the image are left out, too.
    first, last = max(0, -line), min(rows, height - line)
    weights = args.weights + output * rows * columns * pixel
    shift = read_f32(args.bias + output * 4) if args.bias else 0.0
    column = 0
    while column < count:
        address = column * step - args.left
        target, source = out + (column * outputs + output) * 4, image + (line * width + address) * pixel
        # Four whole windows; at the edges, one by one, of which the parts outside are left out instead of padded.
        if address >= 0 and column + 4 <= count and address + 3 * step + columns <= width:
            a, b, c, d = _four(args, source, weights, first, last, columns * pixel // 4)
            write_f32(target, a + shift)
            write_f32(target + outputs * 4, b + shift)
            write_f32(target + outputs * 8, c + shift)
            write_f32(target + outputs * 12, d + shift)
            column += 4
        else:
            begin, end = max(0, -address), min(columns, width - address)
            offset, run = begin * pixel, max(0, end - begin) * pixel // 4
            write_f32(target, _one(args, source + offset, weights + offset, first, last, run) + shift)
            column += 1


@task
def few_output_channels(args: FewOutputChannels, thread: int, threads: int) -> None:
    """A convolution with epilogue; each thread has a range of the rows of all samples."""
    outputs, rows = args.outputs, args.rows
    jobs, line_bytes = args.samples * rows, args.columns * outputs * 4
    image_bytes = args.height * args.width * args.channels * 4
    for job in range(jobs * thread // threads, jobs * (thread + 1) // threads):
        image, out = args.x + job // rows * image_bytes, args.out + job * line_bytes
        # Output channels outermost: a window's rows are in the first cache for the few of them.
        for output in range(outputs):
            _row(args, output, image, job % rows * args.step_down - args.top, out)
        # The epilogue goes over a whole row of pixels, which is in the first cache: a pixel alone is a fraction of a vector.
        for address in range(0, line_bytes, 64):
            left = (line_bytes - address) // 4
            value = finished(args, job * line_bytes + address, left, load_f32_masked(out + address, left))
            store_f32_masked(out + address, value, left)
