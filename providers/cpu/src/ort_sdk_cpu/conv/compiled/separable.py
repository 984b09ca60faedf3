"""Convolutions with one filter per channel on channels-last data, with the ones of one tap before and behind them.

Lines of the picture are made as they are needed, one panel of channels at a time, and stay in a core's cache until no window
reads them any more; so do the results of windows, until they are multiplied.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.conv.microkernels.epilogue import activated, finished
from ort_sdk_cpu.conv.microkernels.pixel_tile import (
    NEAR_STEPS,
    NEAR_TAPS,
    PANEL,
    WINDOWS,
    near_tile,
    picture_tile,
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
from ort_sdk_cpu.gemm.microkernels.sgemm import COLUMNS, ROWS
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.kernel.microkernels.activation_codes import ActivationKind
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, store_f32, store_f32_first, write_i64
from ort_sdk_cpu.simd.work_stealing import leave_jobs, next_job

__all__ = ["PIXEL", "convolve_row", "copy_part", "prepare", "separable", "work_places"]

PIXEL = 4 * PANEL
"""Bytes of a pixel in a panel of lines."""
_CLIP = int(ActivationKind.CLIP)
_CLAIMS = 52
"""Where the words for ``claims`` are."""
_PIECES = 6
"""Most that a part's rows are taken in."""
_ADDRESSES = 64
"""Most lines under a row of windows."""


@inner
def work_places(record: int, work: int) -> tuple[int, int, int, int, int, int]:
    """Addresses of biases of lines and windows, of room for a tile and for addresses, of windows' results and of lines.

    Lines of a picture are behind the addresses.

    Zeros for a panel, the bias of the outputs and room for a tile come first, as ``multiply_pixels`` wants them.
    """
    expanded = panels_of(argument(record, 31))
    room = work + (1 + panels_of(argument(record, 10))) * PIXEL
    line_bias = room + ROWS * PIXEL
    window_bias = line_bias + expanded * PIXEL
    addresses = window_bias + expanded * PIXEL
    picture = addresses + _ADDRESSES * 8
    results = picture + argument(record, 9) * argument(record, 43) * argument(record, 51) * 4
    lines = results
    if argument(record, 1):
        lines += argument(record, 34) * argument(record, 12) * (expanded * PIXEL + 64)
    return line_bias, window_bias, room, addresses, results, lines


@inner
def prepare(record: int, work: int, lines: int, line_bytes: int) -> None:
    """Biases in whole panels, and zeros where lines have no pixels."""
    line_bias, window_bias, _, _, _, _ = work_places(record, work)
    for place in range(0, PIXEL, 64):
        store_f32(work + place, zero_f32())
    copy_vectors(argument(record, 2), argument(record, 10), work + PIXEL)
    copy_vectors(argument(record, 28), argument(record, 31), line_bias)
    copy_vectors(argument(record, 30), argument(record, 31), window_bias)
    for place in range(0, line_bytes, 64):
        store_f32(lines + place, zero_f32())


@inner
def _expand_line(record: int, source: int, panel: int, bias: int, target: int, index: int, lines: int) -> None:
    """A line of products of pixels with a panel: of so many lines one, in the course of which the next panel is asked for."""
    width, channels, activation = argument(record, 8), argument(record, 9), argument(record, 36)
    vectors = min(COLUMNS, (argument(record, 31) - panel * PANEL + 15) // 16)
    weights, row = argument(record, 27) + panel * channels * PIXEL, channels * 4
    low, high = lowest(activation, number(record, 37)), highest(activation, number(record, 38))
    tiles, size = (width + ROWS - 1) // ROWS, channels * PIXEL
    step = line_step_of(lines * tiles * ROWS, channels, size)
    for tile in range(tiles):
        first, asked = width * tile // tiles, (index * tiles + tile) * channels * step // 2
        count = width * (tile + 1) // tiles - first
        place, to = source + first * row, target + first * PIXEL
        ahead, ahead_step = (weights + size + asked, step) if asked < size else (weights, 0)
        pixel_tile(count, vectors, weights, place, row, channels, bias, 0, 0, low, high, to, PIXEL, ahead, ahead_step)


@inner
def _activate_line(record: int, target: int) -> None:
    """What is done to a line where that is more than bounds."""
    activation = argument(record, 36)
    if activation > _CLIP:
        for place in range(target, target + argument(record, 8) * PIXEL, 64):
            store_f32(place, activated(load_f32(place), activation, number(record, 37), number(record, 38)))


@inner
def _convolve_line(record: int, sample: int, index: int, panel: int, bias: int, addresses: int, target: int) -> None:
    """A line of windows of a picture of few channels, in a panel."""
    channels, taps, length = argument(record, 9), argument(record, 43), argument(record, 51)
    height, width, step = argument(record, 49), argument(record, 50), argument(record, 46) * 4
    top = index * argument(record, 45) - argument(record, 47)
    for line in range(channels * taps):
        plane, row = sample * channels + line // taps, top + line % taps
        source = argument(record, 0) + (plane * height + row) * width * 4 if 0 <= row < height else 0
        place = addresses + _ADDRESSES * 8 + line * length * 4
        copy_line(source, width, argument(record, 48), place, length)
        write_i64(addresses + line * 8, place)
    weights = argument(record, 27) + panel * channels * taps * argument(record, 44) * PIXEL
    vectors, activation = min(COLUMNS, (argument(record, 31) - panel * PANEL + 15) // 16), argument(record, 36)
    low, high = lowest(activation, number(record, 37)), highest(activation, number(record, 38))
    columns, lines, across = argument(record, 8), channels * taps, argument(record, 44)
    tiles = (columns + ROWS - 1) // ROWS
    for tile in range(tiles):
        first = columns * tile // tiles
        count, to, offset = columns * (tile + 1) // tiles - first, target + first * PIXEL, first * step
        picture_tile(count, vectors, addresses, lines, offset, step, across, 4, weights, bias, low, high, to, PIXEL)


@inner
def copy_part(record: int, source: int, panel: int, target: int) -> None:
    """A panel of a line as it is."""
    channels, left = argument(record, 9), argument(record, 9) - panel * PANEL
    for column in range(argument(record, 8)):
        place, to = source + (column * channels + panel * PANEL) * 4, target + column * PIXEL
        for lane in range(0, min(PANEL, left), 16):
            store_f32(to + lane * 4, load_f32_first(place + lane * 4, left - lane))


@inner
def _make_lines(
    record: int, sample: int, first: int, stop: int, panel: int, work: int, lines: int, line: int, slots: int
) -> None:
    """A panel of some lines of the picture, each into the place of the line ``slots`` before it."""
    bias, _, _, addresses, _, _ = work_places(record, work)
    row = argument(record, 8) * argument(record, 9) * 4
    for index in range(first, stop):
        source = argument(record, 0) + (sample * argument(record, 7) + index) * row
        target = lines + index % slots * line + argument(record, 18) * PIXEL
        if argument(record, 43):
            _convolve_line(record, sample, index, panel, bias + panel * PIXEL, addresses, target)
            _activate_line(record, target)
        elif argument(record, 27):
            _expand_line(record, source, panel, bias + panel * PIXEL, target, index - first, stop - first)
            _activate_line(record, target)
        else:
            copy_part(record, source, panel, target)


@inner
def _taps(record: int, top: int) -> tuple[int, int]:
    """First and last but one tap of a window that are within the picture's height."""
    size, dilation = argument(record, 7), argument(record, 32)
    first = 0 if top >= 0 else (-top + dilation - 1) // dilation
    stop = 0 if top >= size else min(argument(record, 13), (size - top + dilation - 1) // dilation)
    return first, stop


@inner
def _finish_windows(record: int, room: int, count: int, place: int, left: int) -> None:
    """Windows' sums into the output."""
    for index in range(count):
        for lane in range(0, min(PANEL, left), 16):
            offset = place + index * argument(record, 10) * 4 + lane * 4
            value = finished(record, offset, left - lane, load_f32(room + index * PIXEL + lane * 4))
            store_f32_first(argument(record, 4) + offset, value, left - lane)


@inner
def _activate_windows(record: int, count: int, place: int, row: int) -> None:
    for index in range(count):
        for lane in range(0, PIXEL, 64):
            to = place + index * row + lane
            store_f32(to, activated(load_f32(to), argument(record, 39), number(record, 40), number(record, 41)))


@inner
def convolve_row(
    record: int, lines: int, count: int, weights: int, bias: int, panel: int, room: int, target: int, place: int
) -> None:
    """A row of windows in a panel.

    Args:
        record: of the task.
        lines: address of the addresses of lines under the windows.
        count: how many lines.
        weights: address of the first line's taps.
        bias: address of the panel's.
        panel: which.
        room: address of memory for a tile.
        target: address of the first window's result, to be multiplied; 0: the results are the output.
        place: offset of the first window's result in the output.
    """
    columns, step, taps = argument(record, 12), argument(record, 16), argument(record, 14)
    is_near = (taps == NEAR_TAPS[0] or taps == NEAR_TAPS[1]) and step <= NEAR_STEPS[1] and argument(record, 33) == 1
    left = argument(record, 31) - panel * PANEL
    vectors, row = min(COLUMNS, (left + 15) // 16), panels_of(argument(record, 31)) * PIXEL + 64
    activation = argument(record, 39)
    low, high = lowest(activation, number(record, 40)), highest(activation, number(record, 41))
    is_direct = target != 0
    if not target and has_bounds_only(record) and argument(record, 3) == 0 and left >= vectors * 16:
        is_direct, target, row = True, argument(record, 4) + place, argument(record, 10) * 4
        low, high = lowest(argument(record, 20), number(record, 21)), highest(argument(record, 20), number(record, 22))
    if not target:
        low, high = lowest(0, np.float32(0)), highest(0, np.float32(0))
    tiles = (columns + WINDOWS - 1) // WINDOWS
    for index in range(tiles):
        first = columns * index // tiles
        size = columns * (index + 1) // tiles - first
        to, to_row = (target + first * row, row) if is_direct else (room, PIXEL)
        offset, tap_step = first * step * PIXEL, argument(record, 33) * PIXEL
        if is_near:
            near_tile(size, vectors, lines, count, offset, step, taps, weights, bias, low, high, to, to_row)
        else:
            window_tile(size, vectors, lines, count, offset, step * PIXEL, taps, tap_step, weights, bias, low, high, to, to_row)
        if not is_direct:
            _finish_windows(record, room, size, place + first * argument(record, 10) * 4, left)
        elif activation > _CLIP and argument(record, 1):
            _activate_windows(record, size, to, to_row)


@inner
def _convolve(record: int, sample: int, first: int, stop: int, panel: int, work: int, lines: int, line: int, slots: int) -> None:
    """Some rows of windows in a panel."""
    _, bias, room, addresses, results, _ = work_places(record, work)
    columns, result_row = argument(record, 12), panels_of(argument(record, 31)) * PIXEL + 64
    for row in range(first, stop):
        top = row * argument(record, 15) - argument(record, 17)
        begin, end = _taps(record, top)
        for tap in range(begin, end):
            write_i64(addresses + (tap - begin) * 8, lines + (top + tap * argument(record, 32)) % slots * line)
        weights = argument(record, 29) + (panel * argument(record, 13) + begin) * argument(record, 14) * PIXEL
        target = results + (row - first) * columns * result_row + panel * PIXEL if argument(record, 1) else 0
        place = (sample * argument(record, 11) + row) * columns * argument(record, 10) * 4 + panel * PIXEL
        convolve_row(record, addresses, end - begin, weights, bias + panel * PIXEL, panel, room, target, place)


@inner
def _convolve_sample(
    record: int, sample: int, row: int, stop: int, panels: tuple[int, int], work: int, lines: int, ready: int
) -> int:
    """Some rows of a sample in some panels, a strip at a time. Lines below ``ready`` are made; returns which are then."""
    steps, reach = argument(record, 15), (argument(record, 13) - 1) * argument(record, 32) + 1
    slots, line = (argument(record, 34) - 1) * steps + reach, argument(record, 42) * PIXEL
    while row < stop:
        end = min(stop, row + argument(record, 34))
        needed = min(argument(record, 7), (end - 1) * steps - argument(record, 17) + reach)
        for panel in range(panels[0], panels[1]):
            own = lines + (panel - panels[0]) * slots * line
            _make_lines(record, sample, ready, needed, panel, work, own, line, slots)
            _convolve(record, sample, row, end, panel, work, own, line, slots)
        if argument(record, 1):
            columns, width = argument(record, 12), panels_of(argument(record, 31)) * PIXEL + 64
            first, count = (sample * argument(record, 11) + row) * columns, (end - row) * columns
            x, depth = work_places(record, work)[4], argument(record, 31)
            weights, wanted, size = argument(record, 1), panels_of(argument(record, 10)), depth * PIXEL
            for panel in range(wanted):
                ahead, has_next = weights + (panel + 1) * size, int(panel + 1 < wanted)
                multiply_pixels(record, x, width, count, depth, first, panel, weights, work, ahead, has_next * size, has_next)
        ready, row = max(ready, needed), end
    return ready


@inner
def _convolve_rows(
    record: int, first: int, stop: int, panels: tuple[int, int], work: int, lines: int, made: tuple[int, int]
) -> tuple[int, int]:
    """Some rows of all samples in some panels.

    Args:
        record: of the task.
        first: number of the first row.
        stop: of the one behind the last.
        panels: the first, and the one behind the last.
        work: working memory.
        lines: in it.
        made: behind which row the part was before, and below which lines were made then.

    Returns:
        The same for what comes next.
    """
    rows = argument(record, 11)
    while first < stop:
        sample, row = first // rows, first % rows
        ready = made[1] if row and made[0] == first else max(0, row * argument(record, 15) - argument(record, 17))
        end = min(rows, row + stop - first)
        ready = _convolve_sample(record, sample, row, end, panels, work, lines, ready)
        first += end - row
        made = (first, ready)
    return made


@inner
def _convolve_jobs(record: int, part: int, parts: int, work: int, lines: int) -> None:
    """A panel of all rows at a time, or some strips of all panels, of which lines stay if they follow each other."""
    panels, rows, claims = panels_of(argument(record, 31)), argument(record, 6) * argument(record, 11), record + _CLAIMS * 8
    by_channels, pieces = argument(record, 35), max(1, min(_PIECES, rows // (parts * argument(record, 34))))
    jobs, made = panels if by_channels else parts * pieces, (-1, 0)
    job, tried = next_job(claims, jobs, part, parts, 0)
    while job >= 0:
        first, stop, begin, end = rows * job // jobs, rows * (job + 1) // jobs, 0, panels
        if by_channels:
            first, stop, begin, end, made = 0, rows, job, job + 1, (-1, 0)
        made = _convolve_rows(record, first, stop, (begin, end), work, lines, made)
        job, tried = next_job(claims, jobs, part, parts, tried)
    leave_jobs(claims, parts)


@task
def separable(record: int, part: int, parts: int) -> None:
    """A convolution with a filter per channel, perhaps of what another makes of x; perhaps with one of one tap behind it.

    The other is of one tap, or of a picture of few channels that lies row-major.

    Arguments: addresses of x, weights of the last convolution in panels (or 0), its bias (or 0), addend (or 0), the output and
    working memory; samples, height and width of what the filters read, channels of x, output channels, height and width of the
    output, rows and columns of taps, steps, rows of zeros above, columns of zeros to the left, bytes of working memory per
    thread; what is done to the last sums, as for ``winograd``; addresses of weights in panels (or 0) and bias (or 0) of the
    first convolution, and of filters in panels and bias (or 0); channels of filters, dilations, rows of a strip, whether threads
    share channels in place of rows; activation with its numbers of the first convolution, and of the filters if another follows;
    pixels of a line with its zeros; where x is a picture (else 0): rows and columns of taps of the first convolution, steps,
    rows of zeros above, columns of zeros to the left, height and width of x, numbers of a line with its zeros in whole vectors;
    8 words for ``claims``.
    """
    work = argument(record, 5) + part * argument(record, 19)
    panels = 1 if argument(record, 35) else panels_of(argument(record, 31))
    slots = (argument(record, 34) - 1) * argument(record, 15) + (argument(record, 13) - 1) * argument(record, 32) + 1
    lines = work_places(record, work)[5]
    prepare(record, work, lines, panels * slots * argument(record, 42) * PIXEL)
    _convolve_jobs(record, part, parts, work, lines)
