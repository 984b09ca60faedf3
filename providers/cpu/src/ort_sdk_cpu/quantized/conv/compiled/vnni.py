"""Convolutions of 8-bit channels-last data with packed weights by vector instructions (VNNI); GEMMs are such, too.

``quantized_conv`` has an 8-bit result; ``quantized_conv_add`` adds another tensor to that, and
``quantized_conv_with_zero_points`` multiplies weights that have zero points. ``dequantized_conv`` gives float32 of an x whose
zero point and scale come with each run; ``dequantized_conv_with_zero_points`` does so with weights that have zero points. Panels
have 64 columns, or as many as the name says; x is uint8, or int8 as the name says.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.argument_types import address_of
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task
from ort_sdk_cpu.quantized.conv.arguments.windows import (
    Convolution,
    DequantizedConv,
    DequantizedConvWithZeroPoints,
    QuantizedConv,
    QuantizedConvAdd,
    QuantizedConvWithZeroPoints,
)
from ort_sdk_cpu.quantized.microkernels.dequantize_tile import dequantize_tile_of, dequantize_zero_points_tile_of
from ort_sdk_cpu.quantized.microkernels.requantize_tile import (
    requantize_add_tile_of,
    requantize_tile_of,
    requantize_zero_points_tile_of,
)
from ort_sdk_cpu.quantized.microkernels.tile import PANEL, ROWS, ROWS_WITH_ONES, most_rows, most_rows_with_ones
from ort_sdk_cpu.simd.vector_types import LANES

from .windows import constant_fill, dynamic_fill, panel_at, panel_bytes, windows_task

__all__ = [
    "dequantized_conv",
    "dequantized_conv_int8",
    "dequantized_conv_with_zero_points",
    "dequantized_conv_with_zero_points_int8",
    "quantized_conv",
    "quantized_conv_16",
    "quantized_conv_16_int8",
    "quantized_conv_32",
    "quantized_conv_32_int8",
    "quantized_conv_add",
    "quantized_conv_add_16",
    "quantized_conv_add_16_int8",
    "quantized_conv_add_32",
    "quantized_conv_add_32_int8",
    "quantized_conv_add_int8",
    "quantized_conv_int8",
    "quantized_conv_with_zero_points",
    "quantized_conv_with_zero_points_16",
    "quantized_conv_with_zero_points_16_int8",
    "quantized_conv_with_zero_points_32",
    "quantized_conv_with_zero_points_32_int8",
    "quantized_conv_with_zero_points_int8",
]


def _quantized_tile_of(columns: int, *, is_int8: bool) -> Any:
    requantize_tile, parameters_of_column = requantize_tile_of(columns // LANES, is_int8=is_int8), QuantizedConv.parameters

    @inline
    def tile(args: QuantizedConv, count: int, x: int, panel: int, offset: int, prefetch: int, prefetch_step: int) -> None:
        """Some windows of a line with a panel; ``offset`` is of the first result among all."""
        # Arguments of the micro-kernel are read from the record for each tile: they are in the first cache, and registers are
        # few.
        windows = args.windows
        weights, parameters, left = panel_at(windows, panel, columns, parameters_of_column)
        requantize_tile(
            *(count, x, windows.window_bytes, windows.line_bytes, windows.lines, windows.steps, windows.sign),
            *(weights, parameters, prefetch, prefetch_step, args.out_zero_point, args.out_sign),
            *(windows.out + offset, windows.out_channels, left),
        )

    return tile


def _add_tile_of(columns: int, *, is_int8: bool) -> Any:
    requantize_add_tile = requantize_add_tile_of(columns // LANES, is_int8=is_int8)
    parameters_of_column = QuantizedConvAdd.parameters

    @inline
    def tile(args: QuantizedConvAdd, count: int, x: int, panel: int, offset: int, prefetch: int, prefetch_step: int) -> None:
        """The same, with what is added."""
        windows = args.windows
        weights, parameters, left = panel_at(windows, panel, columns, parameters_of_column)
        requantize_add_tile(
            *(count, x, windows.window_bytes, windows.line_bytes, windows.lines, windows.steps, windows.sign),
            *(weights, parameters, prefetch, prefetch_step, args.out_zero_point, args.out_sign),
            *(windows.out + offset, windows.out_channels, left),
            *(args.addend + offset, args.addend_sign, address_of(args.addition)),
        )

    return tile


def _zero_points_tile_of(columns: int, *, is_int8: bool) -> Any:
    requantize_zero_points_tile = requantize_zero_points_tile_of(columns // LANES, is_int8=is_int8)
    parameters_of_column = QuantizedConvWithZeroPoints.parameters

    @inline
    def tile(
        args: QuantizedConvWithZeroPoints, count: int, x: int, panel: int, offset: int, prefetch: int, prefetch_step: int
    ) -> None:
        """The same of weights with zero points."""
        windows = args.windows
        weights, parameters, left = panel_at(windows, panel, columns, parameters_of_column)
        requantize_zero_points_tile(
            *(count, x, windows.window_bytes, windows.line_bytes, windows.lines, windows.steps, windows.sign),
            *(weights, parameters, prefetch, prefetch_step, args.out_zero_point, args.out_sign),
            *(windows.out + offset, windows.out_channels, left, args.ones),
        )

    return tile


def _float_tile_of(*, is_int8: bool) -> Any:
    dequantize_tile, parameters_of_column = dequantize_tile_of(is_int8=is_int8), DequantizedConv.parameters

    @inline
    def tile(args: DequantizedConv, count: int, x: int, panel: int, offset: int, prefetch: int, prefetch_step: int) -> None:
        """Some windows of a line with a panel, as float32."""
        windows = args.windows
        weights, parameters, left = panel_at(windows, panel, PANEL, parameters_of_column)
        dequantize_tile(
            *(count, x, windows.window_bytes, windows.line_bytes, windows.lines, windows.steps, windows.sign),
            *(weights, parameters, prefetch, prefetch_step, address_of(args.dequantization)),
            *(windows.out + offset * 4, windows.out_channels * 4, left),
        )

    return tile


def _float_zero_points_tile_of(*, is_int8: bool) -> Any:
    dequantize_zero_points_tile, parameters_of_column = (
        dequantize_zero_points_tile_of(is_int8=is_int8),
        DequantizedConvWithZeroPoints.parameters,
    )

    @inline
    def tile(
        args: DequantizedConvWithZeroPoints, count: int, x: int, panel: int, offset: int, prefetch: int, prefetch_step: int
    ) -> None:
        """The same of weights with zero points."""
        windows = args.windows
        weights, parameters, left = panel_at(windows, panel, PANEL, parameters_of_column)
        dequantize_zero_points_tile(
            *(count, x, windows.window_bytes, windows.line_bytes, windows.lines, windows.steps, windows.sign),
            *(weights, parameters, prefetch, prefetch_step, address_of(args.dequantization)),
            *(windows.out + offset * 4, windows.out_channels * 4, left, args.ones),
        )

    return tile


def _blocks(tile_of: Any, most: int, panel_columns: int) -> Any:
    """Windows of a sample with panels, by register tiles of up to ``most`` windows."""

    @inline
    def block(args: Any, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int, _work: int) -> None:
        windows = args.windows
        width, row = windows.out_width, windows.window_bytes
        columns, step = windows.out_channels, windows.stride * pitch
        start, nbytes = sample * windows.out_height * width, panel_bytes(windows, panel_columns)
        for panel in range(begin, end):
            line, window, column = base, first, first % width
            # Meanwhile the next panel is prefetched, a piece with each tile: it is in the first cache when its turn comes. All
            # panels go by for one block of windows, as in BLIS's macro-kernel.
            is_last = panel + 1 == end
            prefetch = windows.weights + (panel if is_last else panel + 1) * nbytes
            while window < stop:
                count = min(width - column, stop - window)
                # Tiles of a row are about as large: one of a single window would take as long as its loads of weights.
                tiles = (count + most - 1) // most
                for tile in range(tiles):
                    rows = (count + tiles - 1 - tile) // tiles
                    # Pieces are to the panel as rows are to the block; the last panel's are of itself, which is in the cache.
                    piece = 0 if is_last else (window - first) * nbytes // (stop - first)
                    prefetch_step = 0 if is_last else (rows * 4 * panel_columns + stop - first - 1) // (stop - first)
                    offset = (start + window) * columns + panel * panel_columns
                    tile_of(args, rows, line + column * row, panel, offset, prefetch + piece, prefetch_step)
                    window += rows
                    column += rows
                line, column = line + step, 0

    return block


def _task(name: str, tile_of: Any, fill_of: Any, arguments: type[Convolution], most: int, columns: int = PANEL) -> Task:
    return windows_task(name, _blocks(tile_of, most, columns), fill_of, arguments, columns)


def _quantized(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    tile = _quantized_tile_of(columns, is_int8=is_int8)
    return _task(name, tile, constant_fill, QuantizedConv, most_rows(columns // LANES), columns)


def _add(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    tile = _add_tile_of(columns, is_int8=is_int8)
    return _task(name, tile, constant_fill, QuantizedConvAdd, most_rows(columns // LANES), columns)


def _zero_points(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    tile = _zero_points_tile_of(columns, is_int8=is_int8)
    return _task(name, tile, constant_fill, QuantizedConvWithZeroPoints, most_rows_with_ones(columns // LANES), columns)


def _float(name: str, *, is_int8: bool = False) -> Task:
    return _task(name, _float_tile_of(is_int8=is_int8), dynamic_fill, DequantizedConv, ROWS)


def _float_zero_points(name: str, *, is_int8: bool = False) -> Task:
    tile = _float_zero_points_tile_of(is_int8=is_int8)
    return _task(name, tile, dynamic_fill, DequantizedConvWithZeroPoints, ROWS_WITH_ONES)


# Names are what launches look for; each task is compiled when it is first used, and few models use more than some.
quantized_conv = _quantized("quantized_conv")
quantized_conv_32 = _quantized("quantized_conv_32", 32)
quantized_conv_16 = _quantized("quantized_conv_16", 16)
quantized_conv_int8 = _quantized("quantized_conv_int8", is_int8=True)
quantized_conv_32_int8 = _quantized("quantized_conv_32_int8", 32, is_int8=True)
quantized_conv_16_int8 = _quantized("quantized_conv_16_int8", 16, is_int8=True)
quantized_conv_add = _add("quantized_conv_add")
quantized_conv_add_32 = _add("quantized_conv_add_32", 32)
quantized_conv_add_16 = _add("quantized_conv_add_16", 16)
quantized_conv_add_int8 = _add("quantized_conv_add_int8", is_int8=True)
quantized_conv_add_32_int8 = _add("quantized_conv_add_32_int8", 32, is_int8=True)
quantized_conv_add_16_int8 = _add("quantized_conv_add_16_int8", 16, is_int8=True)
quantized_conv_with_zero_points = _zero_points("quantized_conv_with_zero_points")
quantized_conv_with_zero_points_32 = _zero_points("quantized_conv_with_zero_points_32", 32)
quantized_conv_with_zero_points_16 = _zero_points("quantized_conv_with_zero_points_16", 16)
quantized_conv_with_zero_points_int8 = _zero_points("quantized_conv_with_zero_points_int8", is_int8=True)
quantized_conv_with_zero_points_32_int8 = _zero_points("quantized_conv_with_zero_points_32_int8", 32, is_int8=True)
quantized_conv_with_zero_points_16_int8 = _zero_points("quantized_conv_with_zero_points_16_int8", 16, is_int8=True)
dequantized_conv = _float("dequantized_conv")
dequantized_conv_int8 = _float("dequantized_conv_int8", is_int8=True)
dequantized_conv_with_zero_points = _float_zero_points("dequantized_conv_with_zero_points")
dequantized_conv_with_zero_points_int8 = _float_zero_points("dequantized_conv_with_zero_points_int8", is_int8=True)
