"""Convolutions of 8-bit channels-last data with packed weights, as 8-bit data; products of matrices are such, too.

Windows are read where they lie, if nothing is outside of the data; else out of a *frame*: a copy of some lines with the zero
point around them. A line of a window is one piece of memory, so that the loop along K goes over the lines of a window only.

``quantized_convolution`` saturates rounded(sums * scales) + zero point; ``quantized_sum`` also adds another tensor to that, and
``quantized_unit_convolution`` multiplies weights that have zero points.
``float_convolution`` gives float32 of an x whose zero point and scale are known at run time only; ``float_unit_convolution``
does so with weights that have zero points. Panels have 64 columns, or as many as the name says; X is uint8, or as it says.

Arguments: addresses of x, packed weights, the output, what belongs to each panel's columns, of what is added or of the units of
windows, and of working memory; samples, height, width and channels of x, height, width and channels of the output; lines of a
window, bytes from one to the next, steps of four numbers in each, bytes from window to window; lines from a row of windows to
the next, lines above and columns left of x, lines from a window's first to its last; bytes of a line; 0 to read where x lies, 1
out of a frame, 2 out of one in which planes of x lie side by side; x's zero point in all of four bytes (not read for float32);
windows in a block, whether threads share the columns and not the windows, bytes of working memory per thread; flip of int8 x;
for 8 bits, zero point of the output (as if it were uint8), its flip, flip of what is added, and the numbers of
``quantized_sum_tile``; for float32, the numbers of ``float_tile``.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import Task, task
from ort_sdk_cpu.simd.arithmetic import add, multiply, shift_left, splat_i32
from ort_sdk_cpu.simd.bytes import broadcast_u8, load_bytes_first
from ort_sdk_cpu.simd.integer_float_tiles import float_tile_of, float_unit_tile_of
from ort_sdk_cpu.simd.integer_tiles import PANEL, ROWS, UNIT_ROWS, most_rows, most_unit_rows
from ort_sdk_cpu.simd.memory import load_i32, load_u8_first, store_i32
from ort_sdk_cpu.simd.quantized_tiles import quantized_sum_tile_of, quantized_tile_of, quantized_unit_tile_of
from ort_sdk_cpu.simd.records import argument
from ort_sdk_cpu.simd.vector_types import LANES

__all__ = [
    "float_convolution",
    "float_convolution_of_int8",
    "float_unit_convolution",
    "float_unit_convolution_of_int8",
    "quantized_convolution",
    "quantized_convolution_16",
    "quantized_convolution_16_of_int8",
    "quantized_convolution_32",
    "quantized_convolution_32_of_int8",
    "quantized_convolution_of_int8",
    "quantized_sum",
    "quantized_sum_16",
    "quantized_sum_16_of_int8",
    "quantized_sum_32",
    "quantized_sum_32_of_int8",
    "quantized_sum_of_int8",
    "quantized_unit_convolution",
    "quantized_unit_convolution_16",
    "quantized_unit_convolution_16_of_int8",
    "quantized_unit_convolution_32",
    "quantized_unit_convolution_32_of_int8",
    "quantized_unit_convolution_of_int8",
]

_X, _WEIGHTS, _OUT, _COLUMNS, _ADDEND, _WORK = range(6)
_SAMPLES, _HEIGHT, _WIDTH, _CHANNELS, _OUT_HEIGHT, _OUT_WIDTH, _OUT_CHANNELS = range(6, 13)
_LINES, _LINE_BYTES, _STEPS, _ROW_BYTES = range(13, 17)
_STRIDE, _TOP, _LEFT, _EXTENT = range(17, 21)
_PITCH, _KIND, _FILL = range(21, 24)
_BLOCK, _BY_COLUMNS, _WORK_BYTES = range(24, 27)
_FLIP, _ZERO_POINT, _OUT_FLIP, _ADDEND_FLIP, _NUMBERS = range(27, 32)
_UNITS, _FLOAT_NUMBERS = _ADDEND, _ZERO_POINT
_PLAIN_PARAMETERS, _UNIT_PARAMETERS, _FLOAT_PARAMETERS = 2, 3, 4
"""Numbers that belong to a column."""
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
def _panel_bytes(record: int, width: int) -> int:
    steps: int = argument(record, _LINES) * argument(record, _STEPS)
    return steps * 4 * width


@inner
def _windows_at(record: int) -> tuple[int, int, int, int]:
    """Bytes from window to window and from line to line of one, its lines and their steps."""
    window = argument(record, _ROW_BYTES), argument(record, _LINE_BYTES)
    return window[0], window[1], argument(record, _LINES), argument(record, _STEPS)


@inner
def _panel_at(record: int, panel: int, width: int, parameters: int) -> tuple[int, int, int]:
    """Where a panel and the numbers that belong to its columns are, and the columns there are from its first on."""
    weights = argument(record, _WEIGHTS) + panel * _panel_bytes(record, width)
    return weights, argument(record, _COLUMNS) + panel * 4 * width * parameters, argument(record, _OUT_CHANNELS) - panel * width


def _plain_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_tile = quantized_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """Some windows of a line with a panel; ``offset`` is of the output's first row."""
        row, line, lines, steps = _windows_at(record)
        weights, parameters, left = _panel_at(record, panel, width, _PLAIN_PARAMETERS)
        quantized_tile(
            *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
            *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
            *(argument(record, _OUT_CHANNELS), left),
        )

    return tile


def _sum_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_sum_tile = quantized_sum_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same, with what is added."""
        row, line, lines, steps = _windows_at(record)
        weights, parameters, left = _panel_at(record, panel, width, _PLAIN_PARAMETERS)
        quantized_sum_tile(
            *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
            *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
            *(argument(record, _OUT_CHANNELS), left),
            *(argument(record, _ADDEND) + offset, argument(record, _ADDEND_FLIP), record + _NUMBERS * 8),
        )

    return tile


def _unit_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_unit_tile = quantized_unit_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same of weights with zero points."""
        row, line, lines, steps = _windows_at(record)
        weights, parameters, left = _panel_at(record, panel, width, _UNIT_PARAMETERS)
        quantized_unit_tile(
            *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
            *(argument(record, _ZERO_POINT), argument(record, _OUT_FLIP), argument(record, _OUT) + offset),
            *(argument(record, _OUT_CHANNELS), left, argument(record, _UNITS)),
        )

    return tile


def _float_tile_of(*, is_int8: bool) -> Any:
    float_tile = float_tile_of(is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """Some windows of a line with a panel, as float32."""
        row, line, lines, steps = _windows_at(record)
        weights, parameters, left = _panel_at(record, panel, PANEL, _FLOAT_PARAMETERS)
        float_tile(
            *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
            *(record + _FLOAT_NUMBERS * 8, argument(record, _OUT) + offset * 4, argument(record, _OUT_CHANNELS) * 4, left),
        )

    return tile


def _float_unit_tile_of(*, is_int8: bool) -> Any:
    float_unit_tile = float_unit_tile_of(is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same of weights with zero points."""
        row, line, lines, steps = _windows_at(record)
        weights, parameters, left = _panel_at(record, panel, PANEL, _FLOAT_PARAMETERS)
        float_unit_tile(
            *(count, x, row, line, lines, steps, argument(record, _FLIP), weights, parameters, soon, soon_step),
            *(record + _FLOAT_NUMBERS * 8, argument(record, _OUT) + offset * 4, argument(record, _OUT_CHANNELS) * 4, left),
            argument(record, _UNITS),
        )

    return tile


def _blocks(tile_of: Any, most: int, panel_width: int) -> Any:
    """Windows of a sample with panels, by tiles."""

    @inner
    def block(record: int, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int) -> None:
        width, row = argument(record, _OUT_WIDTH), argument(record, _ROW_BYTES)
        columns, step = argument(record, _OUT_CHANNELS), argument(record, _STRIDE) * pitch
        start, panel_bytes = sample * argument(record, _OUT_HEIGHT) * width, _panel_bytes(record, panel_width)
        for panel in range(begin, end):
            place, window, column = base, first, first % width
            # Meanwhile the next panel is asked for, a piece with each tile.
            is_last = panel + 1 == end
            soon = argument(record, _WEIGHTS) + (panel if is_last else panel + 1) * panel_bytes
            while window < stop:
                count = min(width - column, stop - window)
                tiles = (count + most - 1) // most
                for tile in range(tiles):
                    rows = (count + tiles - 1 - tile) // tiles
                    piece = 0 if is_last else (window - first) * panel_bytes // (stop - first)
                    soon_step = 0 if is_last else (rows * 4 * panel_width + stop - first - 1) // (stop - first)
                    offset = (start + window) * columns + panel * panel_width
                    tile_of(record, rows, place + column * row, panel, offset, soon + piece, soon_step)
                    window += rows
                    column += rows
                place, column = place + step, 0

    return block


def _task(name: str, tile_of: Any, fill_of: Any, most: int = ROWS, panel_width: int = PANEL) -> Task:
    block = _blocks(tile_of, most, panel_width)

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
        panels, work = (argument(record, _OUT_CHANNELS) + panel_width - 1) // panel_width, argument(record, _WORK)
        work += part * argument(record, _WORK_BYTES)
        if argument(record, _BY_COLUMNS):
            windows(record, 0, count, panels * part // parts, panels * (part + 1) // parts, work)
        else:
            windows(record, count * part // parts, count * (part + 1) // parts, 0, panels, work)

    convolution.__name__ = name
    return task(convolution)


def _quantized(name: str, tile_of: Any, width: int = PANEL, *, is_int8: bool = False) -> Task:
    return _task(name, tile_of(width, is_int8=is_int8), _constant_fill, most_rows(width // LANES), width)


def _with_units(name: str, width: int = PANEL, *, is_int8: bool = False) -> Task:
    return _task(name, _unit_tile_of(width, is_int8=is_int8), _constant_fill, most_unit_rows(width // LANES), width)


def _float(name: str, tile_of: Any, most: int, *, is_int8: bool = False) -> Task:
    return _task(name, tile_of(is_int8=is_int8), _dynamic_fill, most)


quantized_convolution = _quantized("quantized_convolution", _plain_tile_of)
quantized_convolution_32 = _quantized("quantized_convolution_32", _plain_tile_of, 32)
quantized_convolution_16 = _quantized("quantized_convolution_16", _plain_tile_of, 16)
quantized_convolution_of_int8 = _quantized("quantized_convolution_of_int8", _plain_tile_of, is_int8=True)
quantized_convolution_32_of_int8 = _quantized("quantized_convolution_32_of_int8", _plain_tile_of, 32, is_int8=True)
quantized_convolution_16_of_int8 = _quantized("quantized_convolution_16_of_int8", _plain_tile_of, 16, is_int8=True)
quantized_sum = _quantized("quantized_sum", _sum_tile_of)
quantized_sum_32 = _quantized("quantized_sum_32", _sum_tile_of, 32)
quantized_sum_16 = _quantized("quantized_sum_16", _sum_tile_of, 16)
quantized_sum_of_int8 = _quantized("quantized_sum_of_int8", _sum_tile_of, is_int8=True)
quantized_sum_32_of_int8 = _quantized("quantized_sum_32_of_int8", _sum_tile_of, 32, is_int8=True)
quantized_sum_16_of_int8 = _quantized("quantized_sum_16_of_int8", _sum_tile_of, 16, is_int8=True)
quantized_unit_convolution = _with_units("quantized_unit_convolution")
quantized_unit_convolution_32 = _with_units("quantized_unit_convolution_32", 32)
quantized_unit_convolution_16 = _with_units("quantized_unit_convolution_16", 16)
quantized_unit_convolution_of_int8 = _with_units("quantized_unit_convolution_of_int8", is_int8=True)
quantized_unit_convolution_32_of_int8 = _with_units("quantized_unit_convolution_32_of_int8", 32, is_int8=True)
quantized_unit_convolution_16_of_int8 = _with_units("quantized_unit_convolution_16_of_int8", 16, is_int8=True)
float_convolution = _float("float_convolution", _float_tile_of, ROWS)
float_convolution_of_int8 = _float("float_convolution_of_int8", _float_tile_of, ROWS, is_int8=True)
float_unit_convolution = _float("float_unit_convolution", _float_unit_tile_of, UNIT_ROWS)
float_unit_convolution_of_int8 = _float("float_unit_convolution_of_int8", _float_unit_tile_of, UNIT_ROWS, is_int8=True)
