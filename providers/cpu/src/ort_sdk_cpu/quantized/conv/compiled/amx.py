"""The convolutions of ``vnni`` by a processor's matrix unit (AMX).

Up to 32 windows, two groups of windows that follow each other, are multiplied with a panel; their sums go to workspace, as
tiles can only be stored to memory. For weights with zero points, so are they with a panel of 16 columns of ones.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.argument_types import address_of
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task
from ort_sdk_cpu.platform.targets import InstructionSet
from ort_sdk_cpu.quantized.conv.arguments.windows import (
    DequantizedConv,
    DequantizedConvWithZeroPoints,
    QuantizedConv,
    QuantizedConvAdd,
    QuantizedConvWithZeroPoints,
)
from ort_sdk_cpu.quantized.microkernels.amx_block import BLOCK_ROWS, multiply_block_of
from ort_sdk_cpu.quantized.microkernels.dequantize_rows import dequantize_rows, dequantize_zero_points_rows, store_initial_sums_of
from ort_sdk_cpu.quantized.microkernels.requantize_rows import (
    requantize_add_rows_of,
    requantize_rows_of,
    requantize_zero_points_rows_of,
)
from ort_sdk_cpu.quantized.microkernels.tile import PANEL
from ort_sdk_cpu.simd.amx import TILE_ROWS, configure_tiles, release_tiles
from ort_sdk_cpu.simd.arithmetic import zero_i32
from ort_sdk_cpu.simd.memory import store_i32
from ort_sdk_cpu.simd.vector_types import LANES

from .windows import constant_fill, dynamic_fill, panel_at, panel_bytes, windows_task

__all__ = [
    "NEEDS",
    "WORKSPACE_BYTES",
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

NEEDS = InstructionSet.AMX
"""The level that the module's tasks need: no code is made of them for others."""

# A configuration is 64 bytes; vectors behind it are aligned.
_STARTS, _ZEROS = 64, 64 + 4 * PANEL
"""Offsets into workspace, behind the description of tiles, of what the sums of columns begin with."""
_TOTALS = _ZEROS + 64
"""Offset of sums of windows' elements, a vector of each."""
_SUMS = _TOTALS + BLOCK_ROWS * 64
WORKSPACE_BYTES = _SUMS + BLOCK_ROWS * 4 * PANEL
"""Of a thread's workspace, at its end."""
_COLUMNS_AT_ONCE = 32
_LINE_BYTES = 64


@inline
def _group_at(window: int, stop: int, width: int) -> int:
    """Windows of the group that begins with one: all groups of a line are about as large.

    So the unit is configured anew once or twice per line, and no group is left with a window or two: tiles take as long whatever
    rows they have.
    """
    if window >= stop:
        return 0
    count = min(width - window % width, stop - window)
    groups = (count + TILE_ROWS - 1) // TILE_ROWS
    return (count + groups - 1) // groups


@inline
def _window_offset(window: int, width: int, start: int, step: int, row: int) -> int:
    """Bytes from where the first line of a block begins, whose number is ``start``, to a window."""
    offset: int = (window // width - start) * step + window % width * row
    return offset


def _blocks(finish: Any, start_of: Any, panel_columns: int, parameters: int, *, is_int8: bool, has_ones: bool = False) -> Any:
    """Windows of a sample with panels, two groups at a time."""
    sum_up = _total_of(is_int8=is_int8) if has_ones else _no_total
    multiply_block = multiply_block_of(panel_columns // LANES, is_int8=is_int8)
    turns = (panel_columns + _COLUMNS_AT_ONCE - 1) // _COLUMNS_AT_ONCE

    @inline
    def block(args: Any, sample: int, first: int, stop: int, begin: int, end: int, base: int, pitch: int, work: int) -> None:
        windows = args.windows
        spare = work + windows.workspace_bytes - WORKSPACE_BYTES
        row, line, lines, steps = windows.window_bytes, windows.line_bytes, windows.lines, windows.steps
        chunk_steps = windows.chunk_steps
        width, columns, step = windows.out_width, windows.out_channels, windows.stride * pitch
        before, start = sample * windows.out_height * width, first // width
        chunks, panel_lines = lines * (steps // chunk_steps) * turns, panel_bytes(windows, panel_columns) // _LINE_BYTES
        # What is prefetched for a panel is spread over all multiplications with the one before.
        all_chunks = chunks * ((stop - first) // BLOCK_ROWS + 1)
        first_rows, second_rows = 0, 1
        for panel in range(begin, end):
            weights, of_columns, left = panel_at(windows, panel, panel_columns, parameters)
            starts, prefetch = start_of(args, of_columns, spare + _STARTS), weights + panel_lines * _LINE_BYTES
            # Meanwhile the next panel is prefetched, some cache lines with each chunk.
            asked = 0 if panel + 1 == end else panel_lines
            share, window = (asked + all_chunks - 1) // all_chunks, first
            while window < stop:
                rows = _group_at(window, stop, width)
                following = window + rows
                others = _group_at(following, stop, width)
                # A configuration is loaded from memory and clears all tiles: only where the sizes of groups change.
                if rows != first_rows or (others and others != second_rows):
                    first_rows, second_rows = rows, max(1, others)
                    configure_tiles(spare, first_rows, second_rows, chunk_steps)
                x = base + _window_offset(window, width, start, step, row)
                # The second group may be of the next line: it is as far from the first as that is.
                x_group = base + _window_offset(following, width, start, step, row) - x
                groups, prefetch_lines = 2 if others else 1, share if asked > 0 else 0
                sum_up(args, groups, x, x_group, rows, chunk_steps, spare)
                multiply_block(
                    *(groups, x, x_group, row, line, lines, steps // chunk_steps, chunk_steps, weights, starts),
                    *(spare + _SUMS, rows * 4 * panel_columns, prefetch, prefetch_lines),
                )
                asked -= share * chunks
                prefetch += share * chunks * _LINE_BYTES
                offset = (before + window) * columns + panel * panel_columns
                finish(args, rows + others, spare, of_columns, offset, left)
                window = following + others
        # Until they are released, the system saves 8 KiB of tiles at each switch of threads.
        release_tiles()

    return block


@inline
def _no_total(_args: Any, _groups: int, _x: int, _x_group: int, _rows: int, _chunk_steps: int, _spare: int) -> None:
    """Weights have no zero points."""


def _total_of(*, is_int8: bool) -> Any:
    multiply_block = multiply_block_of(1, is_int8=is_int8)

    @inline
    def sum_up(args: Any, groups: int, x: int, x_group: int, rows: int, chunk_steps: int, spare: int) -> None:
        """The sums of windows' elements: products with ones, by the same instruction."""
        windows, zeros = args.windows, spare + _ZEROS
        row, line, lines, steps = windows.window_bytes, windows.line_bytes, windows.lines, windows.steps
        # 16 columns of the same ones: a tile has no fewer, and a vector of equal sums needs no broadcast.
        store_i32(zeros, zero_i32())
        multiply_block(
            *(groups, x, x_group, row, line, lines, steps // chunk_steps, chunk_steps, args.ones, zeros),
            *(spare + _TOTALS, rows * 64, zeros, 0),
        )

    return sum_up


@inline
def _given_starts(_args: QuantizedConv, of_columns: int, _target: int) -> int:
    """What the sums of columns begin with is known."""
    return of_columns


def _dynamic_starts_of(*, is_int8: bool) -> Any:
    store_initial_sums = store_initial_sums_of(is_int8=is_int8)

    @inline
    def starts(args: DequantizedConv, of_columns: int, target: int) -> int:
        """The same where x's zero point comes with each run."""
        # Once per panel: tiles of sums are loaded with it.
        store_initial_sums(of_columns, address_of(args.dequantization), target)
        return target

    return starts


def _quantized_finish_of(columns: int) -> Any:
    requantize_rows = requantize_rows_of(columns // LANES)

    @inline
    def finish(args: QuantizedConv, rows: int, spare: int, of_columns: int, offset: int, left: int) -> None:
        """Rows of sums as 8-bit data; ``offset`` is of the first result among all."""
        out_row = args.windows.out_channels
        requantize_rows(
            *(rows, spare + _SUMS, of_columns, args.out_zero_point, args.out_sign, args.windows.out + offset, out_row, left),
        )

    return finish


def _add_finish_of(columns: int) -> Any:
    requantize_add_rows = requantize_add_rows_of(columns // LANES)

    @inline
    def finish(args: QuantizedConvAdd, rows: int, spare: int, of_columns: int, offset: int, left: int) -> None:
        """The same, with what is added."""
        out_row = args.windows.out_channels
        requantize_add_rows(
            *(rows, spare + _SUMS, of_columns, args.out_zero_point, args.out_sign, args.windows.out + offset, out_row, left),
            *(args.addend + offset, args.addend_sign, address_of(args.addition)),
        )

    return finish


def _zero_points_finish_of(columns: int) -> Any:
    requantize_zero_points_rows = requantize_zero_points_rows_of(columns // LANES)

    @inline
    def finish(args: QuantizedConvWithZeroPoints, rows: int, spare: int, of_columns: int, offset: int, left: int) -> None:
        """The same of weights with zero points."""
        out_row = args.windows.out_channels
        requantize_zero_points_rows(
            *(rows, spare + _SUMS, of_columns, args.out_zero_point, args.out_sign, args.windows.out + offset, out_row, left),
            spare + _TOTALS,
        )

    return finish


@inline
def _float_finish(args: DequantizedConv, rows: int, spare: int, of_columns: int, offset: int, left: int) -> None:
    """Rows of sums as float32."""
    windows = args.windows
    dequantize_rows(
        *(rows, spare + _SUMS, of_columns, address_of(args.dequantization)),
        *(windows.out + offset * 4, windows.out_channels * 4, left),
    )


@inline
def _float_zero_points_finish(
    args: DequantizedConvWithZeroPoints, rows: int, spare: int, of_columns: int, offset: int, left: int
) -> None:
    """The same of weights with zero points."""
    windows = args.windows
    dequantize_zero_points_rows(
        *(rows, spare + _SUMS, of_columns, address_of(args.dequantization)),
        *(windows.out + offset * 4, windows.out_channels * 4, left, spare + _TOTALS),
    )


def _quantized(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    block = _blocks(_quantized_finish_of(columns), _given_starts, columns, QuantizedConv.parameters, is_int8=is_int8)
    return windows_task(name, block, constant_fill, QuantizedConv, columns)


def _add(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    block = _blocks(_add_finish_of(columns), _given_starts, columns, QuantizedConvAdd.parameters, is_int8=is_int8)
    return windows_task(name, block, constant_fill, QuantizedConvAdd, columns)


def _zero_points(name: str, columns: int = PANEL, *, is_int8: bool = False) -> Task:
    finish, parameters = _zero_points_finish_of(columns), QuantizedConvWithZeroPoints.parameters
    block = _blocks(finish, _given_starts, columns, parameters, is_int8=is_int8, has_ones=True)
    return windows_task(name, block, constant_fill, QuantizedConvWithZeroPoints, columns)


def _float(name: str, *, is_int8: bool = False) -> Task:
    starts = _dynamic_starts_of(is_int8=is_int8)
    block = _blocks(_float_finish, starts, PANEL, DequantizedConv.parameters, is_int8=is_int8)
    return windows_task(name, block, dynamic_fill, DequantizedConv, PANEL)


def _float_zero_points(name: str, *, is_int8: bool = False) -> Task:
    starts, parameters = _dynamic_starts_of(is_int8=is_int8), DequantizedConvWithZeroPoints.parameters
    block = _blocks(_float_zero_points_finish, starts, PANEL, parameters, is_int8=is_int8, has_ones=True)
    return windows_task(name, block, dynamic_fill, DequantizedConvWithZeroPoints, PANEL)


# The same tasks as by vectors, under the same names: launches choose the module.
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
