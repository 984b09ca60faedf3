"""The convolutions of ``integer_convolution`` on a processor's matrix unit (AMX).

Up to 32 windows, two groups of windows that are side by side, are multiplied with a panel; their sums go to working memory. For
weights with zero points, so are they with a panel of 16 columns that all are the units of windows.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task
from ort_sdk_cpu.quantized.microkernels.amx_block import BLOCK_ROWS, multiply_block_of
from ort_sdk_cpu.quantized.microkernels.dequantize_rows import float_rows, float_unit_rows, store_starts_of
from ort_sdk_cpu.quantized.microkernels.requantize_rows import quantized_rows_of, quantized_sum_rows_of, quantized_unit_rows_of
from ort_sdk_cpu.quantized.microkernels.tile import PANEL
from ort_sdk_cpu.simd.amx import TILE_ROWS, configure, release
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import zero_i32
from ort_sdk_cpu.simd.memory import store_i32
from ort_sdk_cpu.simd.vector_types import LANES

from .windows import (
    ADDEND,
    ADDEND_FLIP,
    CHUNK_STEPS,
    FLOAT_NUMBERS,
    FLOAT_PARAMETERS,
    NUMBERS,
    OUT,
    OUT_CHANNELS,
    OUT_FLIP,
    OUT_HEIGHT,
    OUT_WIDTH,
    PLAIN_PARAMETERS,
    STRIDE,
    UNIT_PARAMETERS,
    UNITS,
    WORK_BYTES,
    ZERO_POINT,
    bytes_of_panel,
    constant_fill,
    dynamic_fill,
    panel_at,
    windows_at,
    windows_task,
)

__all__ = [
    "SPARE_BYTES",
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

_STARTS, _ZEROS = 64, 64 + 4 * PANEL
"""Where in working memory, behind the unit's description, columns' sums to begin with are."""
_TOTALS = _ZEROS + 64
"""Where sums of windows' numbers are, a vector of each."""
_SUMS = _TOTALS + BLOCK_ROWS * 64
SPARE_BYTES = _SUMS + BLOCK_ROWS * 4 * PANEL
"""Of a thread's working memory, at its end."""
_COLUMNS_AT_ONCE = 32
_LINE_BYTES = 64


@inner
def _group_at(window: int, stop: int, width: int) -> int:
    """Windows of the group that begins with one: all groups of a line are about as large."""
    if window >= stop:
        return 0
    count = min(width - window % width, stop - window)
    groups = (count + TILE_ROWS - 1) // TILE_ROWS
    return (count + groups - 1) // groups


@inner
def _place_of(window: int, width: int, start: int, step: int, row: int) -> int:
    """Bytes from where the first line of a block begins, whose number is ``start``, to a window."""
    place: int = (window // width - start) * step + window % width * row
    return place


def _blocks(finish: Any, start_of: Any, panel_width: int, parameters: int, *, is_int8: bool, has_units: bool = False) -> Any:
    """Windows of a sample with panels, two groups at a time."""
    sum_up = _total_of(is_int8=is_int8) if has_units else _no_total
    multiply_block = multiply_block_of(panel_width // LANES, is_int8=is_int8)
    turns = (panel_width + _COLUMNS_AT_ONCE - 1) // _COLUMNS_AT_ONCE

    @inner
    def block(record: int, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int, work: int) -> None:
        spare = work + argument(record, WORK_BYTES) - SPARE_BYTES
        row, line, lines, steps = windows_at(record)
        chunk_steps = argument(record, CHUNK_STEPS)
        width, columns, step = argument(record, OUT_WIDTH), argument(record, OUT_CHANNELS), argument(record, STRIDE) * pitch
        before, start = sample * argument(record, OUT_HEIGHT) * width, first // width
        chunks, panel_lines = lines * (steps // chunk_steps) * turns, bytes_of_panel(record, panel_width) // _LINE_BYTES
        all_chunks = chunks * ((stop - first) // BLOCK_ROWS + 1)
        first_rows, second_rows = 0, 1
        for panel in range(begin, end):
            weights, numbers, left = panel_at(record, panel, panel_width, parameters)
            starts, soon = start_of(record, numbers, spare + _STARTS), weights + panel_lines * _LINE_BYTES
            # Meanwhile the next panel is asked for, some lines with each chunk.
            asked = 0 if panel + 1 == end else panel_lines
            share, window = (asked + all_chunks - 1) // all_chunks, first
            while window < stop:
                rows = _group_at(window, stop, width)
                following = window + rows
                others = _group_at(following, stop, width)
                if rows != first_rows or (others and others != second_rows):
                    first_rows, second_rows = rows, max(1, others)
                    configure(spare, first_rows, second_rows, chunk_steps)
                x = base + _place_of(window, width, start, step, row)
                x_group = base + _place_of(following, width, start, step, row) - x
                groups, soon_lines = 2 if others else 1, share if asked > 0 else 0
                sum_up(record, groups, x, x_group, rows, chunk_steps, spare)
                multiply_block(
                    *(groups, x, x_group, row, line, lines, steps // chunk_steps, chunk_steps, weights, starts),
                    *(spare + _SUMS, rows * 4 * panel_width, soon, soon_lines),
                )
                asked -= share * chunks
                soon += share * chunks * _LINE_BYTES
                offset = (before + window) * columns + panel * panel_width
                finish(record, rows + others, spare, numbers, offset, left)
                window = following + others
        release()

    return block


@inner
def _no_total(_record: int, _groups: int, _x: int, _x_group: int, _rows: int, _chunk_steps: int, _spare: int) -> None:
    """Weights have no zero points."""


def _total_of(*, is_int8: bool) -> Any:
    multiply_block = multiply_block_of(1, is_int8=is_int8)

    @inner
    def sum_up(record: int, groups: int, x: int, x_group: int, rows: int, chunk_steps: int, spare: int) -> None:
        """The sums of windows' numbers."""
        row, line, lines, steps = windows_at(record)
        zeros = spare + _ZEROS
        store_i32(zeros, zero_i32())
        multiply_block(
            *(groups, x, x_group, row, line, lines, steps // chunk_steps, chunk_steps, argument(record, UNITS), zeros),
            *(spare + _TOTALS, rows * 64, zeros, 0),
        )

    return sum_up


@inner
def _given_starts(_record: int, numbers: int, _target: int) -> int:
    """What the sums of columns begin with is known."""
    return numbers


def _dynamic_starts_of(*, is_int8: bool) -> Any:
    store_starts = store_starts_of(is_int8=is_int8)

    @inner
    def starts(record: int, numbers: int, target: int) -> int:
        """The same where x's zero point is known at run time only."""
        store_starts(numbers, record + FLOAT_NUMBERS * 8, target)
        return target

    return starts


def _plain_finish_of(width: int) -> Any:
    quantized_rows = quantized_rows_of(width // LANES)

    @inner
    def finish(record: int, rows: int, spare: int, numbers: int, offset: int, left: int) -> None:
        """Rows of sums as 8-bit data; ``offset`` is of the output's first row."""
        quantized_rows(
            *(rows, spare + _SUMS, numbers, argument(record, ZERO_POINT), argument(record, OUT_FLIP)),
            *(argument(record, OUT) + offset, argument(record, OUT_CHANNELS), left),
        )

    return finish


def _sum_finish_of(width: int) -> Any:
    quantized_sum_rows = quantized_sum_rows_of(width // LANES)

    @inner
    def finish(record: int, rows: int, spare: int, numbers: int, offset: int, left: int) -> None:
        """The same, with what is added."""
        quantized_sum_rows(
            *(rows, spare + _SUMS, numbers, argument(record, ZERO_POINT), argument(record, OUT_FLIP)),
            *(argument(record, OUT) + offset, argument(record, OUT_CHANNELS), left),
            *(argument(record, ADDEND) + offset, argument(record, ADDEND_FLIP), record + NUMBERS * 8),
        )

    return finish


def _unit_finish_of(width: int) -> Any:
    quantized_unit_rows = quantized_unit_rows_of(width // LANES)

    @inner
    def finish(record: int, rows: int, spare: int, numbers: int, offset: int, left: int) -> None:
        """The same of weights with zero points."""
        quantized_unit_rows(
            *(rows, spare + _SUMS, numbers, argument(record, ZERO_POINT), argument(record, OUT_FLIP)),
            *(argument(record, OUT) + offset, argument(record, OUT_CHANNELS), left, spare + _TOTALS),
        )

    return finish


@inner
def _float_finish(record: int, rows: int, spare: int, numbers: int, offset: int, left: int) -> None:
    """Rows of sums as float32."""
    float_rows(
        *(rows, spare + _SUMS, numbers, record + FLOAT_NUMBERS * 8),
        *(argument(record, OUT) + offset * 4, argument(record, OUT_CHANNELS) * 4, left),
    )


@inner
def _float_unit_finish(record: int, rows: int, spare: int, numbers: int, offset: int, left: int) -> None:
    """The same of weights with zero points."""
    float_unit_rows(
        *(rows, spare + _SUMS, numbers, record + FLOAT_NUMBERS * 8),
        *(argument(record, OUT) + offset * 4, argument(record, OUT_CHANNELS) * 4, left, spare + _TOTALS),
    )


def _quantized(name: str, finish_of: Any, width: int = PANEL, *, is_int8: bool = False) -> Task:
    block = _blocks(finish_of(width), _given_starts, width, PLAIN_PARAMETERS, is_int8=is_int8)
    return windows_task(name, block, constant_fill, width)


def _with_units(name: str, width: int = PANEL, *, is_int8: bool = False) -> Task:
    finish = _unit_finish_of(width)
    block = _blocks(finish, _given_starts, width, UNIT_PARAMETERS, is_int8=is_int8, has_units=True)
    return windows_task(name, block, constant_fill, width)


def _float(name: str, finish: Any, *, is_int8: bool = False) -> Task:
    starts, has_units = _dynamic_starts_of(is_int8=is_int8), finish is _float_unit_finish
    block = _blocks(finish, starts, PANEL, FLOAT_PARAMETERS, is_int8=is_int8, has_units=has_units)
    return windows_task(name, block, dynamic_fill, PANEL)


quantized_convolution = _quantized("quantized_convolution", _plain_finish_of)
quantized_convolution_32 = _quantized("quantized_convolution_32", _plain_finish_of, 32)
quantized_convolution_16 = _quantized("quantized_convolution_16", _plain_finish_of, 16)
quantized_convolution_of_int8 = _quantized("quantized_convolution_of_int8", _plain_finish_of, is_int8=True)
quantized_convolution_32_of_int8 = _quantized("quantized_convolution_32_of_int8", _plain_finish_of, 32, is_int8=True)
quantized_convolution_16_of_int8 = _quantized("quantized_convolution_16_of_int8", _plain_finish_of, 16, is_int8=True)
quantized_sum = _quantized("quantized_sum", _sum_finish_of)
quantized_sum_32 = _quantized("quantized_sum_32", _sum_finish_of, 32)
quantized_sum_16 = _quantized("quantized_sum_16", _sum_finish_of, 16)
quantized_sum_of_int8 = _quantized("quantized_sum_of_int8", _sum_finish_of, is_int8=True)
quantized_sum_32_of_int8 = _quantized("quantized_sum_32_of_int8", _sum_finish_of, 32, is_int8=True)
quantized_sum_16_of_int8 = _quantized("quantized_sum_16_of_int8", _sum_finish_of, 16, is_int8=True)
quantized_unit_convolution = _with_units("quantized_unit_convolution")
quantized_unit_convolution_32 = _with_units("quantized_unit_convolution_32", 32)
quantized_unit_convolution_16 = _with_units("quantized_unit_convolution_16", 16)
quantized_unit_convolution_of_int8 = _with_units("quantized_unit_convolution_of_int8", is_int8=True)
quantized_unit_convolution_32_of_int8 = _with_units("quantized_unit_convolution_32_of_int8", 32, is_int8=True)
quantized_unit_convolution_16_of_int8 = _with_units("quantized_unit_convolution_16_of_int8", 16, is_int8=True)
float_convolution = _float("float_convolution", _float_finish)
float_convolution_of_int8 = _float("float_convolution_of_int8", _float_finish, is_int8=True)
float_unit_convolution = _float("float_unit_convolution", _float_unit_finish)
float_unit_convolution_of_int8 = _float("float_unit_convolution_of_int8", _float_unit_finish, is_int8=True)
