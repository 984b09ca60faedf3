"""Convolutions of volumes with one filter per channel, on channels-last data.

An output's row is under rows of taps from several planes. A panel of their lines is copied with zeros around it, into places of
their own for each plane of taps, where they stay until no window of the rows that follow reads them any more.
"""

from __future__ import annotations

from ort_sdk_cpu.conv.microkernels.pointwise import panels_of
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import write_i64

from .separable import PIXEL, convolve_row, copy_part, prepare, work_places

__all__ = ["separable_volume"]

_DEPTH, _OUT_DEPTH, _TAPS, _STEP, _DILATION, _BEFORE = 52, 53, 54, 55, 56, 57


@inner
def _planes(record: int, front: int) -> tuple[int, int]:
    """First and last but one plane of taps within the volume, for windows that begin at a plane."""
    size, dilation = argument(record, _DEPTH), argument(record, _DILATION)
    first = 0 if front >= 0 else (-front + dilation - 1) // dilation
    stop = 0 if front >= size else min(argument(record, _TAPS), (size - front + dilation - 1) // dilation)
    return first, max(first, stop)


@inner
def _slots(record: int) -> int:
    """Lines of a plane under a row of windows, those between taps with them."""
    return int((argument(record, 13) - 1) * argument(record, 32) + 1)


@inner
def _copy_lines(record: int, plane: int, first: int, stop: int, panel: int, lines: int) -> None:
    """A panel of some lines of a plane, each into the place of the one that is no more needed."""
    row, line = argument(record, 8) * argument(record, 9) * 4, argument(record, 42) * PIXEL
    for index in range(first, stop):
        source = argument(record, 0) + (plane * argument(record, 7) + index) * row
        copy_part(record, source, panel, lines + index % _slots(record) * line + argument(record, 18) * PIXEL)


@inner
def _point(record: int, top: int, zeros: int, lines: int, addresses: int) -> None:
    """Addresses of the lines of a plane under a row of windows; of zeros where there are none."""
    line, height = argument(record, 42) * PIXEL, argument(record, 7)
    for tap in range(argument(record, 13)):
        index = top + tap * argument(record, 32)
        write_i64(addresses + tap * 8, lines + index % _slots(record) * line if 0 <= index < height else zeros)


@inner
def _convolve_plane(record: int, sample: int, depth: int, first: int, stop: int, panel: int, work: int) -> None:
    """Some rows of a plane of the output, in a panel."""
    _, bias, room, addresses, _, zeros = work_places(record, work)
    front = depth * argument(record, _STEP) - argument(record, _BEFORE)
    rows, line = argument(record, 13), argument(record, 42) * PIXEL
    begin, end = _planes(record, front)
    weights = argument(record, 29) + (panel * argument(record, _TAPS) + begin) * rows * argument(record, 14) * PIXEL
    output = (sample * argument(record, _OUT_DEPTH) + depth) * argument(record, 11)
    ready = 0
    for row in range(first, stop):
        top = row * argument(record, 15) - argument(record, 17)
        needed = min(argument(record, 7), top + _slots(record))
        for tap in range(begin, end):
            lines = zeros + (1 + tap * _slots(record)) * line
            plane = sample * argument(record, _DEPTH) + front + tap * argument(record, _DILATION)
            _copy_lines(record, plane, max(ready, top), needed, panel, lines)
            _point(record, top, zeros, lines, addresses + (tap - begin) * rows * 8)
        ready = max(ready, needed)
        place = (output + row) * argument(record, 12) * argument(record, 10) * 4 + panel * PIXEL
        convolve_row(record, addresses, (end - begin) * rows, weights, bias + panel * PIXEL, panel, room, 0, place)


@task
def separable_volume(record: int, part: int, parts: int) -> None:
    """A convolution of a volume with a filter per channel.

    Arguments: those of ``separable`` for the planes of the volume, of one convolution alone; the volume's depth, the output's,
    planes of taps, step and dilation along the depth, and planes of zeros before the volume.
    """
    work, rows = argument(record, 5) + part * argument(record, 19), argument(record, 11)
    total = argument(record, 6) * argument(record, _OUT_DEPTH) * rows
    first, stop = total * part // parts, total * (part + 1) // parts
    count = 1 + argument(record, _TAPS) * _slots(record)
    prepare(record, work, work_places(record, work)[5], count * argument(record, 42) * PIXEL)
    while first < stop:
        plane, row = first // rows, first % rows
        end = min(rows, row + stop - first)
        sample, depth = plane // argument(record, _OUT_DEPTH), plane % argument(record, _OUT_DEPTH)
        for panel in range(panels_of(argument(record, 31))):
            _convolve_plane(record, sample, depth, row, end, panel, work)
        first += end - row
