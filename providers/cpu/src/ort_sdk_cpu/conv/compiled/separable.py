"""Depthwise convolutions on NHWC data, with the pointwise ones before and behind them: inverted bottlenecks in one task.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018). The expanded image has several times the channels
of the input and the output, and would not fit into the caches. So it is never made as a whole: lines of it are expanded as they
are needed, one panel of channels at a time, into a ring of lines in the thread's workspace, where they stay until no window reads
them any more; so do the results of windows, until they are projected.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.conv.arguments.separable import Separable, SeparableSizes
from ort_sdk_cpu.conv.microkernels.epilogue import activated, finished
from ort_sdk_cpu.conv.microkernels.pixel_tile import (
    NEAR_STEPS,
    NEAR_TAPS,
    PANEL,
    WINDOWS,
    image_tile,
    near_tile,
    pixel_tile,
    window_tile,
)
from ort_sdk_cpu.conv.microkernels.pointwise import (
    copy_line,
    copy_vectors,
    has_bounds_only,
    highest,
    line_step_of,
    lowest,
    multiply_pixels,
    panels_of,
)
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, store_f32, store_f32_masked, write_i64
from ort_sdk_cpu.simd.synchronization import finish_jobs, next_job

__all__ = ["PIXEL", "convolve_row", "copy_part", "prepare", "separable", "work_addresses"]

PIXEL = 4 * PANEL
"""Bytes of a pixel in a panel of lines."""
_CLIP = int(ActivationKind.CLIP)
# Jobs of a sixth of a thread's rows let others take what is left of a slow one; more would make the lines under their edges anew.
_PIECES = 6
"""Most jobs of a thread's rows."""
_ADDRESSES = 64
"""Most lines under a row of windows: so many addresses there is room for."""


@inline
def work_addresses(args: SeparableSizes, work: int) -> tuple[int, int, int, int, int, int]:
    """Addresses of biases of lines and windows, of room for a tile and for addresses, of windows' results and of lines.

    Zeros for a panel, the bias of the outputs and room for a tile come first, as ``multiply_pixels`` wants them. Lines of an
    image of few channels are behind the addresses.
    """
    # What ``multiply_pixels`` needs comes first, then biases, and last what grows with the image.
    expanded = panels_of(args.filtered)
    room = work + (1 + panels_of(args.outputs)) * PIXEL
    line_bias = room + MR * PIXEL
    window_bias = line_bias + expanded * PIXEL
    addresses = window_bias + expanded * PIXEL
    image = addresses + _ADDRESSES * 8
    results = image + args.channels * args.image.taps_down * args.image.length * 4
    lines = results
    if args.weights:
        lines += args.strip * args.columns * (expanded * PIXEL + 64)
    return line_bias, window_bias, room, addresses, results, lines


@inline
def prepare(args: SeparableSizes, work: int, lines: int, line_bytes: int) -> None:
    """Biases in whole panels, and zeros where lines have no pixels."""
    line_bias, window_bias, _, _, _, _ = work_addresses(args, work)
    for address in range(0, PIXEL, 64):
        store_f32(work + address, zero_f32())
    copy_vectors(args.bias, args.outputs, work + PIXEL)
    copy_vectors(args.line_bias, args.filtered, line_bias)
    copy_vectors(args.window_bias, args.filtered, window_bias)
    for address in range(0, line_bytes, 64):
        store_f32(lines + address, zero_f32())


@inline
def _expand_line(args: SeparableSizes, source: int, panel: int, bias: int, target: int, index: int, lines: int) -> None:
    """A line of the expanded image in a panel: one of so many lines, in the course of which the next panel is prefetched."""
    width, channels, activation = args.width, args.channels, args.line_activation.kind
    vectors = min(NR_VECTORS, (args.filtered - panel * PANEL + 15) // 16)
    weights, row = args.line_weights + panel * channels * PIXEL, channels * 4
    low, high = lowest(activation, args.line_activation.alpha), highest(activation, args.line_activation.beta)
    # Spread over all lines that are made together, the next panel of weights arrives without a burst of prefetches.
    tiles, size = (width + MR - 1) // MR, channels * PIXEL
    step = line_step_of(lines * tiles * MR, channels, size)
    for tile in range(tiles):
        first, asked = width * tile // tiles, (index * tiles + tile) * channels * step // 2
        count = width * (tile + 1) // tiles - first
        address, to = source + first * row, target + first * PIXEL
        ahead, ahead_step = (weights + size + asked, step) if asked < size else (weights, 0)
        pixel_tile(count, vectors, weights, address, row, channels, bias, 0, 0, low, high, to, PIXEL, ahead, ahead_step)


@inline
def _activate_line(args: SeparableSizes, target: int) -> None:
    """The activation of a line where that is more than bounds, which the micro-kernel applies."""
    activation = args.line_activation.kind
    # Codes up to ``CLIP`` are bounds or nothing, which the micro-kernel applied to its accumulators.
    if activation > _CLIP:
        for address in range(target, target + args.width * PIXEL, 64):
            store_f32(address, activated(load_f32(address), activation, args.line_activation.alpha, args.line_activation.beta))


@inline
def _convolve_line(args: SeparableSizes, sample: int, index: int, panel: int, bias: int, addresses: int, target: int) -> None:
    """A line of the first convolution of a network, in a panel."""
    channels, taps, length = args.channels, args.image.taps_down, args.image.length
    height, width, step = args.image.height, args.image.width, args.image.step_right * 4
    top = index * args.image.step_down - args.image.top
    for line in range(channels * taps):
        plane, row = sample * channels + line // taps, top + line % taps
        source = args.x + (plane * height + row) * width * 4 if 0 <= row < height else 0
        address = addresses + _ADDRESSES * 8 + line * length * 4
        # A line outside of the image is zeros, so that the micro-kernel has no edges.
        copy_line(source, width, args.image.left, address, length)
        write_i64(addresses + line * 8, address)
    weights = args.line_weights + panel * channels * taps * args.image.taps_right * PIXEL
    vectors, activation = min(NR_VECTORS, (args.filtered - panel * PANEL + 15) // 16), args.line_activation.kind
    low, high = lowest(activation, args.line_activation.alpha), highest(activation, args.line_activation.beta)
    columns, lines, across = args.width, channels * taps, args.image.taps_right
    tiles = (columns + MR - 1) // MR
    for tile in range(tiles):
        first = columns * tile // tiles
        count, to, offset = columns * (tile + 1) // tiles - first, target + first * PIXEL, first * step
        image_tile(count, vectors, addresses, lines, offset, step, across, 4, weights, bias, low, high, to, PIXEL)


@inline
def copy_part(args: SeparableSizes, source: int, panel: int, target: int) -> None:
    """A panel of a line as it is."""
    channels, left = args.channels, args.channels - panel * PANEL
    for column in range(args.width):
        address, to = source + (column * channels + panel * PANEL) * 4, target + column * PIXEL
        for lane in range(0, min(PANEL, left), 16):
            store_f32(to + lane * 4, load_f32_masked(address + lane * 4, left - lane))


@inline
def _make_lines(
    args: SeparableSizes, sample: int, first: int, stop: int, panel: int, work: int, lines: int, line: int, slots: int
) -> None:
    """A panel of some lines, each into the slot of the ring that the line ``slots`` before it had."""
    bias, _, _, addresses, _, _ = work_addresses(args, work)
    # The zeros to the left and right of a line were written once: only what is between them is made anew.
    row = args.width * args.channels * 4
    for index in range(first, stop):
        source = args.x + (sample * args.height + index) * row
        target = lines + index % slots * line + args.left * PIXEL
        if args.image.taps_down:
            _convolve_line(args, sample, index, panel, bias + panel * PIXEL, addresses, target)
            _activate_line(args, target)
        elif args.line_weights:
            _expand_line(args, source, panel, bias + panel * PIXEL, target, index - first, stop - first)
            _activate_line(args, target)
        else:
            copy_part(args, source, panel, target)


@inline
def _taps(args: SeparableSizes, top: int) -> tuple[int, int]:
    """First and last but one tap of a window that are within the image's height."""
    size, dilation = args.height, args.dilation_down
    first = 0 if top >= 0 else (-top + dilation - 1) // dilation
    stop = 0 if top >= size else min(args.taps_down, (size - top + dilation - 1) // dilation)
    return first, stop


@inline
def _finish_windows(args: SeparableSizes, room: int, count: int, address: int, left: int) -> None:
    """Windows' sums into the output."""
    for index in range(count):
        for lane in range(0, min(PANEL, left), 16):
            offset = address + index * args.outputs * 4 + lane * 4
            value = finished(args, offset, left - lane, load_f32(room + index * PIXEL + lane * 4))
            store_f32_masked(args.out + offset, value, left - lane)


@inline
def _activate_windows(args: SeparableSizes, count: int, address: int, row: int) -> None:
    for index in range(count):
        for lane in range(0, PIXEL, 64):
            to = address + index * row + lane
            store_f32(
                to,
                activated(load_f32(to), args.window_activation.kind, args.window_activation.alpha, args.window_activation.beta),
            )


@inline
def convolve_row(
    args: SeparableSizes, lines: int, count: int, weights: int, bias: int, panel: int, room: int, target: int, address: int
) -> None:
    """A row of windows in a panel.

    Args:
        args: of the task.
        lines: address of the addresses of lines under the windows.
        count: how many lines.
        weights: address of the first line's taps.
        bias: address of the panel's.
        panel: which.
        room: address of memory for a tile.
        target: address of the first window's result, to be multiplied; 0: the results are the output.
        address: offset of the first window's result in the output.
    """
    columns, step, taps = args.columns, args.step_right, args.taps_right
    # 3 and 5 taps next to each other are nearly all filters there are: their micro-kernel loads each pixel once for all windows.
    is_near = (taps == NEAR_TAPS[0] or taps == NEAR_TAPS[1]) and step <= NEAR_STEPS[1] and args.dilation_right == 1
    left = args.filtered - panel * PANEL
    vectors, row = min(NR_VECTORS, (left + 15) // 16), panels_of(args.filtered) * PIXEL + 64
    activation = args.window_activation.kind
    low, high = lowest(activation, args.window_activation.alpha), highest(activation, args.window_activation.beta)
    is_direct = target != 0
    # Straight into the output, if bounds are all that follows, and vectors are whole.
    if not target and has_bounds_only(args) and args.added == 0 and left >= vectors * 16:
        is_direct, target, row = True, args.out + address, args.outputs * 4
        low, high = lowest(args.epilogue.activation, args.epilogue.alpha), highest(args.epilogue.activation, args.epilogue.beta)
    if not target:
        low, high = lowest(0, np.float32(0)), highest(0, np.float32(0))
    # Tiles of nearly equal width instead of full ones and a remainder: a narrow register tile waits for its loads.
    tiles = (columns + WINDOWS - 1) // WINDOWS
    for index in range(tiles):
        first = columns * index // tiles
        size = columns * (index + 1) // tiles - first
        to, to_row = (target + first * row, row) if is_direct else (room, PIXEL)
        offset, tap_step = first * step * PIXEL, args.dilation_right * PIXEL
        if is_near:
            near_tile(size, vectors, lines, count, offset, step, taps, weights, bias, low, high, to, to_row)
        else:
            window_tile(size, vectors, lines, count, offset, step * PIXEL, taps, tap_step, weights, bias, low, high, to, to_row)
        if not is_direct:
            _finish_windows(args, room, size, address + first * args.outputs * 4, left)
        elif activation > _CLIP and args.weights:
            _activate_windows(args, size, to, to_row)


@inline
def _convolve(
    args: SeparableSizes, sample: int, first: int, stop: int, panel: int, work: int, lines: int, line: int, slots: int
) -> None:
    """Some rows of windows in a panel."""
    _, bias, room, addresses, results, _ = work_addresses(args, work)
    columns, result_row = args.columns, panels_of(args.filtered) * PIXEL + 64
    for row in range(first, stop):
        top = row * args.step_down - args.top
        begin, end = _taps(args, top)
        for tap in range(begin, end):
            # Windows read lines by their addresses: a ring needs no copy when it wraps around.
            write_i64(addresses + (tap - begin) * 8, lines + (top + tap * args.dilation_down) % slots * line)
        weights = args.filters + (panel * args.taps_down + begin) * args.taps_right * PIXEL
        target = results + (row - first) * columns * result_row + panel * PIXEL if args.weights else 0
        address = (sample * args.rows + row) * columns * args.outputs * 4 + panel * PIXEL
        convolve_row(args, addresses, end - begin, weights, bias + panel * PIXEL, panel, room, target, address)


@inline
def _convolve_sample(
    args: SeparableSizes, sample: int, row: int, stop: int, panels: tuple[int, int], work: int, lines: int, ready: int
) -> int:
    """Some rows of a sample in some panels, a strip at a time. Lines below ``ready`` are made; returns which are then."""
    steps, reach = args.step_down, (args.taps_down - 1) * args.dilation_down + 1
    slots, line = (args.strip - 1) * steps + reach, args.line * PIXEL
    while row < stop:
        end = min(stop, row + args.strip)
        needed = min(args.height, (end - 1) * steps - args.top + reach)
        for panel in range(panels[0], panels[1]):
            # Panel by panel: windows are computed while the panel's lines are in the cache.
            own = lines + (panel - panels[0]) * slots * line
            _make_lines(args, sample, ready, needed, panel, work, own, line, slots)
            _convolve(args, sample, row, end, panel, work, own, line, slots)
        if args.weights:
            columns, width = args.columns, panels_of(args.filtered) * PIXEL + 64
            first, count = (sample * args.rows + row) * columns, (end - row) * columns
            x, depth = work_addresses(args, work)[4], args.filtered
            weights, wanted, size = args.weights, panels_of(args.outputs), depth * PIXEL
            # Each panel of weights is read once for a whole strip of rows, and the next one is prefetched meanwhile.
            for panel in range(wanted):
                ahead, has_next = weights + (panel + 1) * size, int(panel + 1 < wanted)
                multiply_pixels(args, x, width, count, depth, first, panel, weights, work, ahead, has_next * size, has_next)
        ready, row = max(ready, needed), end
    return ready


@inline
def _convolve_rows(
    args: SeparableSizes, first: int, stop: int, panels: tuple[int, int], work: int, lines: int, made: tuple[int, int]
) -> tuple[int, int]:
    """Some rows of all samples in some panels.

    Args:
        args: of the task.
        first: number of the first row.
        stop: of the one behind the last.
        panels: the first, and the one behind the last.
        work: workspace.
        lines: in it.
        made: behind which row the part was before, and below which lines were made then.

    Returns:
        The same for what comes next.
    """
    rows = args.rows
    while first < stop:
        sample, row = first // rows, first % rows
        # Lines that this thread made for the rows before these are still in the ring.
        ready = made[1] if row and made[0] == first else max(0, row * args.step_down - args.top)
        end = min(rows, row + stop - first)
        ready = _convolve_sample(args, sample, row, end, panels, work, lines, ready)
        first += end - row
        made = (first, ready)
    return made


@inline
def _convolve_jobs(args: Separable, thread: int, threads: int, work: int, lines: int) -> None:
    """A panel of all rows at a time, or some strips of all panels, of which lines stay if they follow each other."""
    # By channels no line is made twice, as happens at the edges of jobs of rows; but a projection needs all channels at once.
    panels, rows, counters = panels_of(args.filtered), args.samples * args.rows, args.jobs.first
    by_channels, pieces = args.is_by_channels, max(1, min(_PIECES, rows // (threads * args.strip)))
    jobs, made = panels if by_channels else threads * pieces, (-1, 0)
    job, tried = next_job(counters, jobs, thread, threads, 0)
    while job >= 0:
        first, stop, begin, end = rows * job // jobs, rows * (job + 1) // jobs, 0, panels
        if by_channels:
            first, stop, begin, end, made = 0, rows, job, job + 1, (-1, 0)
        made = _convolve_rows(args, first, stop, (begin, end), work, lines, made)
        job, tried = next_job(counters, jobs, thread, threads, tried)
    finish_jobs(counters, threads)


@task
def separable(args: Separable, thread: int, threads: int) -> None:
    """A depthwise convolution, perhaps of what another one makes of X, perhaps with a pointwise one behind it.

    The one before is pointwise, or the first of a network, of an NCHW image of few channels. Threads steal jobs of rows or of
    panels.
    """
    work = args.work + thread * args.work_bytes
    panels = 1 if args.is_by_channels else panels_of(args.filtered)
    slots = (args.strip - 1) * args.step_down + (args.taps_down - 1) * args.dilation_down + 1
    lines = work_addresses(args, work)[5]
    prepare(args, work, lines, panels * slots * args.line * PIXEL)
    _convolve_jobs(args, thread, threads, work, lines)
