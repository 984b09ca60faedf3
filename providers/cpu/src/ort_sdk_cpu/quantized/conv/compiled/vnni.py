"""Convolutions of 8-bit channels-last data with packed weights, as 8-bit data; products of matrices are such, too.

``quantized_convolution`` saturates rounded(sums * scales) + zero point; ``quantized_sum`` also adds another tensor to that, and
``quantized_unit_convolution`` multiplies weights that have zero points.
``float_convolution`` gives float32 of an x whose zero point and scale are known at run time only; ``float_unit_convolution``
does so with weights that have zero points. Panels have 64 columns, or as many as the name says; X is uint8, or as it says.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import Task
from ort_sdk_cpu.quantized.microkernels.dequantize_tile import float_tile_of, float_unit_tile_of
from ort_sdk_cpu.quantized.microkernels.requantize_tile import quantized_sum_tile_of, quantized_tile_of, quantized_unit_tile_of
from ort_sdk_cpu.quantized.microkernels.tile import PANEL, ROWS, UNIT_ROWS, most_rows, most_unit_rows
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.vector_types import LANES

from .windows import (
    ADDEND,
    ADDEND_FLIP,
    FLIP,
    FLOAT_NUMBERS,
    FLOAT_PARAMETERS,
    NUMBERS,
    OUT,
    OUT_CHANNELS,
    OUT_FLIP,
    OUT_HEIGHT,
    OUT_WIDTH,
    PLAIN_PARAMETERS,
    ROW_BYTES,
    STRIDE,
    UNIT_PARAMETERS,
    UNITS,
    WEIGHTS,
    ZERO_POINT,
    bytes_of_panel,
    constant_fill,
    dynamic_fill,
    panel_at,
    windows_at,
    windows_task,
)

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


def _plain_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_tile = quantized_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """Some windows of a line with a panel; ``offset`` is of the output's first row."""
        row, line, lines, steps = windows_at(record)
        weights, parameters, left = panel_at(record, panel, width, PLAIN_PARAMETERS)
        quantized_tile(
            *(count, x, row, line, lines, steps, argument(record, FLIP), weights, parameters, soon, soon_step),
            *(argument(record, ZERO_POINT), argument(record, OUT_FLIP), argument(record, OUT) + offset),
            *(argument(record, OUT_CHANNELS), left),
        )

    return tile


def _sum_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_sum_tile = quantized_sum_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same, with what is added."""
        row, line, lines, steps = windows_at(record)
        weights, parameters, left = panel_at(record, panel, width, PLAIN_PARAMETERS)
        quantized_sum_tile(
            *(count, x, row, line, lines, steps, argument(record, FLIP), weights, parameters, soon, soon_step),
            *(argument(record, ZERO_POINT), argument(record, OUT_FLIP), argument(record, OUT) + offset),
            *(argument(record, OUT_CHANNELS), left),
            *(argument(record, ADDEND) + offset, argument(record, ADDEND_FLIP), record + NUMBERS * 8),
        )

    return tile


def _unit_tile_of(width: int, *, is_int8: bool) -> Any:
    quantized_unit_tile = quantized_unit_tile_of(width // LANES, is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same of weights with zero points."""
        row, line, lines, steps = windows_at(record)
        weights, parameters, left = panel_at(record, panel, width, UNIT_PARAMETERS)
        quantized_unit_tile(
            *(count, x, row, line, lines, steps, argument(record, FLIP), weights, parameters, soon, soon_step),
            *(argument(record, ZERO_POINT), argument(record, OUT_FLIP), argument(record, OUT) + offset),
            *(argument(record, OUT_CHANNELS), left, argument(record, UNITS)),
        )

    return tile


def _float_tile_of(*, is_int8: bool) -> Any:
    float_tile = float_tile_of(is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """Some windows of a line with a panel, as float32."""
        row, line, lines, steps = windows_at(record)
        weights, parameters, left = panel_at(record, panel, PANEL, FLOAT_PARAMETERS)
        float_tile(
            *(count, x, row, line, lines, steps, argument(record, FLIP), weights, parameters, soon, soon_step),
            *(record + FLOAT_NUMBERS * 8, argument(record, OUT) + offset * 4, argument(record, OUT_CHANNELS) * 4, left),
        )

    return tile


def _float_unit_tile_of(*, is_int8: bool) -> Any:
    float_unit_tile = float_unit_tile_of(is_int8=is_int8)

    @inner
    def tile(record: int, count: int, x: int, panel: int, offset: int, soon: int, soon_step: int) -> None:
        """The same of weights with zero points."""
        row, line, lines, steps = windows_at(record)
        weights, parameters, left = panel_at(record, panel, PANEL, FLOAT_PARAMETERS)
        float_unit_tile(
            *(count, x, row, line, lines, steps, argument(record, FLIP), weights, parameters, soon, soon_step),
            *(record + FLOAT_NUMBERS * 8, argument(record, OUT) + offset * 4, argument(record, OUT_CHANNELS) * 4, left),
            argument(record, UNITS),
        )

    return tile


def _blocks(tile_of: Any, most: int, panel_width: int) -> Any:
    """Windows of a sample with panels, by tiles."""

    @inner
    def block(record: int, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int, _work: int) -> None:
        width, row = argument(record, OUT_WIDTH), argument(record, ROW_BYTES)
        columns, step = argument(record, OUT_CHANNELS), argument(record, STRIDE) * pitch
        start, panel_bytes = sample * argument(record, OUT_HEIGHT) * width, bytes_of_panel(record, panel_width)
        for panel in range(begin, end):
            place, window, column = base, first, first % width
            # Meanwhile the next panel is asked for, a piece with each tile.
            is_last = panel + 1 == end
            soon = argument(record, WEIGHTS) + (panel if is_last else panel + 1) * panel_bytes
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


def _task(name: str, tile_of: Any, fill_of: Any, most: int, width: int = PANEL) -> Task:
    return windows_task(name, _blocks(tile_of, most, width), fill_of, width)


def _quantized(name: str, tile_of: Any, width: int = PANEL, *, is_int8: bool = False) -> Task:
    return _task(name, tile_of(width, is_int8=is_int8), constant_fill, most_rows(width // LANES), width)


def _with_units(name: str, width: int = PANEL, *, is_int8: bool = False) -> Task:
    return _task(name, _unit_tile_of(width, is_int8=is_int8), constant_fill, most_unit_rows(width // LANES), width)


def _float(name: str, tile_of: Any, most: int, *, is_int8: bool = False) -> Task:
    return _task(name, tile_of(is_int8=is_int8), dynamic_fill, most)


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
