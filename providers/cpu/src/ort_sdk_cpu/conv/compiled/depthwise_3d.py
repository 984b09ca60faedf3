"""Depthwise 3-D convolutions on NDHWC data.

A row of the output is under rows of taps of several planes. A panel of their lines is copied with zeros around it into a ring for
each plane of taps, where it stays until no window of the rows that follow reads it any more.
"""

from __future__ import annotations

from ort_sdk_cpu.conv.arguments.depthwise_3d import Depthwise3d
from ort_sdk_cpu.conv.microkernels.pointwise import panels_of
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.memory import write_i64

from .separable import PIXEL, convolve_row, copy_part, prepare, work_addresses

__all__ = ["depthwise_3d"]


@inline
def _planes(args: Depthwise3d, front: int) -> tuple[int, int]:
    """First and last but one plane of taps within the volume, for windows that begin at a plane."""
    size, dilation = args.depth, args.dilation
    first = 0 if front >= 0 else (-front + dilation - 1) // dilation
    stop = 0 if front >= size else min(args.taps, (size - front + dilation - 1) // dilation)
    return first, max(first, stop)


@inline
def _slots(args: Depthwise3d) -> int:
    """Lines of a plane under a row of windows, those between taps with them."""
    return int((args.taps_down - 1) * args.dilation_down + 1)


@inline
def _copy_lines(args: Depthwise3d, plane: int, first: int, stop: int, panel: int, lines: int) -> None:
    """A panel of some lines of a plane, each into the slot of the ring whose line is no more needed."""
    row, line = args.width * args.channels * 4, args.line * PIXEL
    for index in range(first, stop):
        source = args.x + (plane * args.height + index) * row
        copy_part(args, source, panel, lines + index % _slots(args) * line + args.left * PIXEL)


@inline
def _point(args: Depthwise3d, top: int, zeros: int, lines: int, addresses: int) -> None:
    """Addresses of the lines of a plane under a row of windows; of zeros where there are none."""
    line, height = args.line * PIXEL, args.height
    for tap in range(args.taps_down):
        index = top + tap * args.dilation_down
        write_i64(addresses + tap * 8, lines + index % _slots(args) * line if 0 <= index < height else zeros)


@inline
def _convolve_plane(args: Depthwise3d, sample: int, depth: int, first: int, stop: int, panel: int, work: int) -> None:
    """Some rows of a plane of the output, in a panel."""
    _, bias, room, addresses, _, zeros = work_addresses(args, work)
    front = depth * args.step - args.front
    rows, line = args.taps_down, args.line * PIXEL
    begin, end = _planes(args, front)
    weights = args.filters + (panel * args.taps + begin) * rows * args.taps_right * PIXEL
    output = (sample * args.out_depth + depth) * args.rows
    ready = 0
    for row in range(first, stop):
        top = row * args.step_down - args.top
        needed = min(args.height, top + _slots(args))
        # Planes of taps outside of the volume are left out, rows outside of a plane are zeros: the micro-kernel has no cases.
        for tap in range(begin, end):
            lines = zeros + (1 + tap * _slots(args)) * line
            plane = sample * args.depth + front + tap * args.dilation
            _copy_lines(args, plane, max(ready, top), needed, panel, lines)
            _point(args, top, zeros, lines, addresses + (tap - begin) * rows * 8)
        # Lines below are in the rings already: the windows of the next row overlap with this one's.
        ready = max(ready, needed)
        address = (output + row) * args.columns * args.outputs * 4 + panel * PIXEL
        convolve_row(args, addresses, (end - begin) * rows, weights, bias + panel * PIXEL, panel, room, 0, address)


@task
def depthwise_3d(args: Depthwise3d, thread: int, threads: int) -> None:
    """A depthwise convolution of volumes; each thread has a range of the rows of all planes of the output."""
    work, rows = args.work + thread * args.work_bytes, args.rows
    total = args.samples * args.out_depth * rows
    first, stop = total * thread // threads, total * (thread + 1) // threads
    count = 1 + args.taps * _slots(args)
    prepare(args, work, work_addresses(args, work)[5], count * args.line * PIXEL)
    # A thread's rows may begin and end within a plane; the rings begin anew with each plane.
    while first < stop:
        plane, row = first // rows, first % rows
        end = min(rows, row + stop - first)
        sample, depth = plane // args.out_depth, plane % args.out_depth
        for panel in range(panels_of(args.filtered)):
            _convolve_plane(args, sample, depth, row, end, panel, work)
        first += end - row
