"""Convolutions of 8-bit channels-last data with packed weights, as 8-bit data; products of matrices are such, too.

Windows are read where they lie, if nothing is outside of the data; else out of a *frame*: a copy of some lines with the zero
point around them. A line of a window is one piece of memory, so that the loop along K goes over the lines of a window only.

``quantized_convolution`` saturates rounded(sums * scales) + zero point; ``quantized_sum`` also adds another tensor to that, and
``quantized_unit_convolution`` multiplies weights that have zero points.
``float_convolution`` gives float32 of an x whose zero point and scale are known at run time only; ``float_unit_convolution``
does so with weights that have zero points.

Arguments: addresses of x, packed weights, the output, what belongs to each panel's columns, of what is added or of the units of
windows, and of working memory; samples, height, width and channels of x, height, width and channels of the output; lines of a
window, bytes from one to the next, steps of four numbers in each, bytes from window to window; lines from a row of windows to
the next, lines above and columns left of x, lines from a window's first to its last; bytes of a line; 0 to read where x lies, 1
out of a frame, 2 out of one in which planes of x lie side by side; x's zero point in all of four bytes (not read for float32);
windows in a block, whether threads share the columns and not the windows, bytes of working memory per thread; flip of x; for 8
bits, zero point of the output (as if it were uint8), its flip, flip of what is added, and the numbers of
``quantized_sum_tile``; for float32, the numbers of ``float_tile``.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import add, multiply, shift_left, splat_i32
from ort_sdk_cpu.simd.bytes import broadcast_u8, load_bytes_first
from ort_sdk_cpu.simd.integer_float_tiles import float_tile, float_unit_tile
from ort_sdk_cpu.simd.integer_tiles import PANEL, ROWS, UNIT_ROWS, quantized_sum_tile, quantized_tile, quantized_unit_tile
from ort_sdk_cpu.simd.memory import load_i32, load_u8_first, store_i32
from ort_sdk_cpu.simd.records import argument

__all__ = [
    "float_convolution",
    "float_unit_convolution",
    "quantized_convolution",
    "quantized_sum",
    "quantized_unit_convolution",
]

_X, _WEIGHTS, _OUT, _COLUMNS, _ADDEND, _WORK = range(6)
_SAMPLES, _HEIGHT, _WIDTH, _CHANNELS, _OUT_HEIGHT, _OUT_WIDTH, _OUT_CHANNELS = range(6, 13)
_LINES, _LINE_BYTES, _STEPS, _ROW_BYTES = range(13, 17)
_STRIDE, _TOP, _LEFT, _EXTENT = range(17, 21)
_PITCH, _KIND, _FILL = range(21, 24)
_BLOCK, _BY_COLUMNS, _WORK_BYTES = range(24, 27)
_FLIP, _ZERO_POINT, _OUT_FLIP, _ADDEND_FLIP, _NUMBERS = range(27, 32)
_UNITS, _FLOAT_NUMBERS = _ADDEND, _ZERO_POINT
_STEP_BYTES, _PARAMETER_BYTES, _UNIT_PARAMETER_BYTES, _FLOAT_PARAMETER_BYTES = 4 * PANEL, 8 * PANEL, 12 * PANEL, 16 * PANEL
_EVERY_BYTE = 0x01010101


@inner
def _fill(target: int, stop: int, value: Any) -> None:
    """Up to 63 bytes behind ``stop`` are written, too."""
    for place in range(target, stop, 64):
        store_i32(place, value)


@inner
def _copy(source: int, target: int, count: int) -> None:
    """Up to 63 bytes behind the target are written, too."""
    whole = count // 64 * 64
    for place in range(0, whole, 64):
        store_i32(target + place, load_i32(source + place))
    if whole < count:
        store_i32(target + whole, load_bytes_first(source + whole, count - whole))


@inner
def _spread(source: int, plane: int, channels: int, target: int, count: int) -> None:
    """Up to four planes side by side: four bytes for each element. Up to 60 bytes behind the target are written, too."""
    for place in range(0, count, 16):
        value = load_u8_first(source + place, count - place)
        for channel in range(1, channels):
            value = add(value, shift_left(load_u8_first(source + channel * plane + place, count - place), 8 * channel))
        store_i32(target + place * 4, value)


@inner
def _constant_fill(record: int) -> Any:
    """What lies around x, in every byte."""
    return splat_i32(argument(record, _FILL))


@inner
def _dynamic_fill(record: int) -> Any:
    """The same where x's zero point is known at run time only."""
    return multiply(broadcast_u8(argument(record, _FLOAT_NUMBERS)), splat_i32(_EVERY_BYTE))


@inner
def _frame(record: int, fill: Any, sample: int, line: int, lines: int, work: int) -> None:
    """Lines of the input that some lines of the output are made of, with what is around them."""
    height, width, channels = argument(record, _HEIGHT), argument(record, _WIDTH), argument(record, _CHANNELS)
    pitch, is_spread = argument(record, _PITCH), argument(record, _KIND) == 2
    pixel = 4 if is_spread else channels
    first, before = line * argument(record, _STRIDE) - argument(record, _TOP), argument(record, _LEFT) * pixel
    source = argument(record, _X) + sample * height * width * channels
    for index in range((lines - 1) * argument(record, _STRIDE) + argument(record, _EXTENT)):
        target, row = work + index * pitch, first + index
        if 0 <= row < height:
            _fill(target, target + before, fill)
            if is_spread:
                _spread(source + row * width, height * width, channels, target + before, width)
            else:
                _copy(source + row * width * channels, target + before, width * channels)
            _fill(target + before + width * pixel, target + pitch, fill)
        else:
            _fill(target, target + pitch, fill)


@inner
def _panel_bytes(record: int) -> int:
    steps: int = argument(record, _LINES) * argument(record, _STEPS)
    return steps * _STEP_BYTES


@inner
def _windows_at(record: int) -> tuple[int, int, int, int]:
    """Bytes from window to window and from line to line of one, its lines and their steps."""
    window = argument(record, _ROW_BYTES), argument(record, _LINE_BYTES)
    return window[0], window[1], argument(record, _LINES), argument(record, _STEPS)


@inner
def _panel_at(record: int, panel: int) -> tuple[int, int, int]:
    """Where a panel and what belongs to its columns are, and the columns there are from its first on."""
    weights = argument(record, _WEIGHTS) + panel * _panel_bytes(record)
    return weights, argument(record, _COLUMNS) + panel * _PARAMETER_BYTES, argument(record, _OUT_CHANNELS) - panel * PANEL


@inner
def _plain_tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
    """Some windows of a line with a panel; ``offset`` is of the output's first row."""
    row, line, lines, steps = _windows_at(record)
    weights, parameters, left = _panel_at(record, panel)
    quantized_tile(
        *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
        *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
        *(argument(record, _OUT_CHANNELS), left),
    )


@inner
def _sum_tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
    """The same, with what is added."""
    row, line, lines, steps = _windows_at(record)
    weights, parameters, left = _panel_at(record, panel)
    quantized_sum_tile(
        *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
        *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
        *(argument(record, _OUT_CHANNELS), left),
        *(argument(record, _ADDEND) + offset, argument(record, _ADDEND_FLIP), record + _NUMBERS * 8),
    )


@inner
def _unit_tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
    """The same of weights with zero points."""
    row, line, lines, steps = _windows_at(record)
    weights, _, left = _panel_at(record, panel)
    parameters = argument(record, _COLUMNS) + panel * _UNIT_PARAMETER_BYTES
    quantized_unit_tile(
        *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
        *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
        *(argument(record, _OUT_CHANNELS), left, argument(record, _UNITS)),
    )


@inner
def _float_columns(record: int, panel: int) -> int:
    address: int = argument(record, _COLUMNS) + panel * _FLOAT_PARAMETER_BYTES
    return address


@inner
def _float_tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
    """Some windows of a line with a panel, as float32."""
    row, line, lines, steps = _windows_at(record)
    weights, _, left = _panel_at(record, panel)
    float_tile(
        *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, _float_columns(record, panel), soon, soon_step),
        *(record + _FLOAT_NUMBERS * 8, argument(record, _OUT) + offset * 4, argument(record, _OUT_CHANNELS) * 4, left),
    )


@inner
def _float_unit_tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
    """The same of weights with zero points."""
    row, line, lines, steps = _windows_at(record)
    weights, _, left = _panel_at(record, panel)
    float_unit_tile(
        *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, _float_columns(record, panel), soon, soon_step),
        *(record + _FLOAT_NUMBERS * 8, argument(record, _OUT) + offset * 4, argument(record, _OUT_CHANNELS) * 4, left),
        argument(record, _UNITS),
    )


def _blocks(tile_of: Any, most_rows: int) -> Any:
    """Windows of a sample with panels, by tiles."""

    @inner
    def block(record: int, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int) -> None:
        width, row = argument(record, _OUT_WIDTH), argument(record, _ROW_BYTES)
        columns, step = argument(record, _OUT_CHANNELS), argument(record, _STRIDE) * pitch
        start, panel_bytes = sample * argument(record, _OUT_HEIGHT) * width, _panel_bytes(record)
        for panel in range(begin, end):
            place, window, column = base, first, first % width
            # Meanwhile the next panel is asked for, a piece with each tile.
            is_last = panel + 1 == end
            soon = argument(record, _WEIGHTS) + (panel if is_last else panel + 1) * panel_bytes
            while window < stop:
                count = min(width - column, stop - window)
                tiles = (count + most_rows - 1) // most_rows
                for tile in range(tiles):
                    rows = (count + tiles - 1 - tile) // tiles
                    piece = 0 if is_last else (window - first) * panel_bytes // (stop - first)
                    soon_step = 0 if is_last else (rows * _STEP_BYTES + stop - first - 1) // (stop - first)
                    offset = (start + window) * columns + panel * PANEL
                    tile_of(record, rows, place + column * row, panel, offset, soon + piece, soon_step)
                    window += rows
                    column += rows
                place, column = place + step, 0

    return block


def _task(name: str, tile_of: Any, fill_of: Any, most_rows: int = ROWS) -> Task:
    block = _blocks(tile_of, most_rows)

    @inner
    def windows(record: int, first: int, stop: int, begin: int, end: int, work: int) -> None:
        # In blocks that stay in the second cache; ``base`` is where the line of a block's first window begins.
        width, size, pitch = argument(record, _OUT_WIDTH), argument(record, _BLOCK), argument(record, _PITCH)
        sample_windows = argument(record, _OUT_HEIGHT) * width
        while first < stop:
            sample = first // sample_windows
            start = first - sample * sample_windows
            count = min(size, stop - first, sample_windows - start)
            line, last = start // width, (start + count - 1) // width
            base = work
            if argument(record, _KIND):
                _frame(record, fill_of(record), sample, line, last - line + 1, work)
            else:
                base = argument(record, _X) + (sample * argument(record, _HEIGHT) + line * argument(record, _STRIDE)) * pitch
            block(record, sample, start, start + count, begin, end, base, pitch)
            first += count

    def convolution(record: int, part: int, parts: int) -> None:
        count = argument(record, _SAMPLES) * argument(record, _OUT_HEIGHT) * argument(record, _OUT_WIDTH)
        panels, work = (argument(record, _OUT_CHANNELS) + PANEL - 1) // PANEL, argument(record, _WORK)
        work += part * argument(record, _WORK_BYTES)
        if argument(record, _BY_COLUMNS):
            windows(record, 0, count, panels * part // parts, panels * (part + 1) // parts, work)
        else:
            windows(record, count * part // parts, count * (part + 1) // parts, 0, panels, work)

    convolution.__name__ = name
    return task(convolution)


quantized_convolution = _task("quantized_convolution", _plain_tile, _constant_fill)
quantized_sum = _task("quantized_sum", _sum_tile, _constant_fill)
quantized_unit_convolution = _task("quantized_unit_convolution", _unit_tile, _constant_fill, UNIT_ROWS)
float_convolution = _task("float_convolution", _float_tile, _dynamic_fill)
float_unit_convolution = _task("float_unit_convolution", _float_unit_tile, _dynamic_fill, UNIT_ROWS)
