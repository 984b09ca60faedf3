"""Where the windows of convolutions of 8-bit data lie, and how threads share them, for all tasks of such convolutions.

Windows are read where they lie, if nothing is outside of the data; else out of a *frame*: a copy of some lines with the zero
point around them. A line of a window is one piece of memory, so that the loop along K goes over the lines of a window only.

Arguments: addresses of x, packed weights, the output, what belongs to each panel's columns, of what is added or of the units of
windows, and of working memory; samples, height, width and channels of x, height, width and channels of the output; lines of a
window, bytes from one to the next, steps of four numbers in each, bytes from window to window; lines from a row of windows to
the next, lines above and columns left of x, lines from a window's first to its last; bytes of a line; 0 to read where x lies, 1
out of a frame, 2 out of one in which planes of x lie side by side; x's zero point in all of four bytes (not read for float32);
windows in a block, whether threads share the columns and not the windows, bytes of working memory per thread; flip of int8 x, or
for the matrix unit how many steps are taken at a time; for 8 bits, zero point of the output (as if it were uint8), its flip, flip
of what is added, and the numbers of ``quantized_sum_tile``; for float32, the numbers of ``float_tile``.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task, task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, multiply, shift_left, splat_i32
from ort_sdk_cpu.simd.bytes import broadcast_u8, load_bytes_first
from ort_sdk_cpu.simd.memory import load_i32, load_u8_first, store_i32

__all__ = [
    "ADDEND",
    "ADDEND_FLIP",
    "CHUNK_STEPS",
    "FLIP",
    "FLOAT_NUMBERS",
    "FLOAT_PARAMETERS",
    "NUMBERS",
    "OUT",
    "OUT_CHANNELS",
    "OUT_FLIP",
    "OUT_HEIGHT",
    "OUT_WIDTH",
    "PLAIN_PARAMETERS",
    "ROW_BYTES",
    "STRIDE",
    "UNITS",
    "UNIT_PARAMETERS",
    "WEIGHTS",
    "WORK_BYTES",
    "ZERO_POINT",
    "bytes_of_panel",
    "constant_fill",
    "dynamic_fill",
    "panel_at",
    "windows_at",
    "windows_task",
]

_X, WEIGHTS, OUT, _COLUMNS, ADDEND, _WORK = range(6)
_SAMPLES, _HEIGHT, _WIDTH, _CHANNELS, OUT_HEIGHT, OUT_WIDTH, OUT_CHANNELS = range(6, 13)
_LINES, _LINE_BYTES, _STEPS, ROW_BYTES = range(13, 17)
STRIDE, _TOP, _LEFT, _EXTENT = range(17, 21)
_PITCH, _KIND, _FILL = range(21, 24)
_BLOCK, _BY_COLUMNS, WORK_BYTES = range(24, 27)
FLIP, ZERO_POINT, OUT_FLIP, ADDEND_FLIP, NUMBERS = range(27, 32)
UNITS, FLOAT_NUMBERS, CHUNK_STEPS = ADDEND, ZERO_POINT, FLIP
PLAIN_PARAMETERS, UNIT_PARAMETERS, FLOAT_PARAMETERS = 2, 3, 4
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
def constant_fill(record: int) -> Any:
    """What lies around x, in every byte."""
    return splat_i32(argument(record, _FILL))


@inner
def dynamic_fill(record: int) -> Any:
    """The same where x's zero point is known at run time only."""
    return multiply(broadcast_u8(argument(record, FLOAT_NUMBERS)), splat_i32(_EVERY_BYTE))


@inner
def _frame(record: int, fill: Any, sample: int, line: int, lines: int, work: int) -> None:
    """Lines of the input that some lines of the output are made of, with what is around them."""
    height, width, channels = argument(record, _HEIGHT), argument(record, _WIDTH), argument(record, _CHANNELS)
    pitch, is_spread = argument(record, _PITCH), argument(record, _KIND) == 2
    pixel = 4 if is_spread else channels
    first, before = line * argument(record, STRIDE) - argument(record, _TOP), argument(record, _LEFT) * pixel
    source = argument(record, _X) + sample * height * width * channels
    for index in range((lines - 1) * argument(record, STRIDE) + argument(record, _EXTENT)):
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
def bytes_of_panel(record: int, width: int) -> int:
    """Bytes of a panel of some columns."""
    steps: int = argument(record, _LINES) * argument(record, _STEPS)
    return steps * 4 * width


@inner
def windows_at(record: int) -> tuple[int, int, int, int]:
    """Bytes from window to window and from line to line of one, its lines and their steps."""
    window = argument(record, ROW_BYTES), argument(record, _LINE_BYTES)
    return window[0], window[1], argument(record, _LINES), argument(record, _STEPS)


@inner
def panel_at(record: int, panel: int, width: int, parameters: int) -> tuple[int, int, int]:
    """Where a panel and the numbers that belong to its columns are, and the columns there are from its first on."""
    weights = argument(record, WEIGHTS) + panel * bytes_of_panel(record, width)
    return weights, argument(record, _COLUMNS) + panel * 4 * width * parameters, argument(record, OUT_CHANNELS) - panel * width


def windows_task(name: str, block: Any, fill_of: Any, panel_width: int) -> Task:
    """The task that multiplies windows of samples with panels by ``block``, which gets the thread's working memory, too."""

    @inner
    def windows(record: int, first: int, stop: int, begin: int, end: int, work: int) -> None:
        # In blocks that stay in the second cache; ``base`` is where the line of a block's first window begins.
        width, size, pitch = argument(record, OUT_WIDTH), argument(record, _BLOCK), argument(record, _PITCH)
        sample_windows = argument(record, OUT_HEIGHT) * width
        while first < stop:
            sample = first // sample_windows
            start = first - sample * sample_windows
            count = min(size, stop - first, sample_windows - start)
            line, last = start // width, (start + count - 1) // width
            base = work
            if argument(record, _KIND):
                _frame(record, fill_of(record), sample, line, last - line + 1, work)
            else:
                base = argument(record, _X) + (sample * argument(record, _HEIGHT) + line * argument(record, STRIDE)) * pitch
            block(record, sample, start, start + count, begin, end, base, pitch, work)
            first += count

    def convolution(record: int, part: int, parts: int) -> None:
        count = argument(record, _SAMPLES) * argument(record, OUT_HEIGHT) * argument(record, OUT_WIDTH)
        panels, work = (argument(record, OUT_CHANNELS) + panel_width - 1) // panel_width, argument(record, _WORK)
        work += part * argument(record, WORK_BYTES)
        if argument(record, _BY_COLUMNS):
            windows(record, 0, count, panels * part // parts, panels * (part + 1) // parts, work)
        else:
            windows(record, count * part // parts, count * (part + 1) // parts, 0, panels, work)

    convolution.__name__ = name
    return task(convolution)
