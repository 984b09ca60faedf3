"""Panels of a matrix's columns, and their products with rows of another one, a few steps along K at a time."""

from __future__ import annotations

from ort_sdk_cpu.gemm.microkernels.sgemm import COLUMNS, ROWS, copying_tile, tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, store_f32, store_f32_first
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = [
    "COPY_ROW_BYTES",
    "GROUP",
    "PANEL_BYTES",
    "STEPS",
    "WIDTH",
    "copy_panel",
    "copy_results",
    "copy_rows",
    "multiply_panels",
    "slowness_of",
    "transpose_panel",
]

WIDTH = 16 * COLUMNS
"""Columns of a panel."""
STEPS = 128
"""Steps along K for which a panel is made: so it stays in the cache near the core."""
PANEL_BYTES = (STEPS + 1) * WIDTH * 4
"""Most bytes of a panel."""
COPY_ROW_BYTES = STEPS * 4 + 64
"""Bytes from row to row of copied rows: whatever number of them, they do not meet in the cache."""
GROUP = 8
"""Panels made at a time, at most."""
_AHEAD = 12
"""Rows asked for before they are read."""


@inner
def copy_panel(b: int, b_row: int, steps: int, left: int, panel: int) -> None:
    """The last columns of a matrix, zeros behind them."""
    soon = _AHEAD * b_row
    for step in range(steps):
        place, target = b + step * b_row, panel + step * WIDTH * 4
        for column in range(0, WIDTH, 16):
            prefetch(place + soon + column * 4)
            store_f32(target + column * 4, load_f32_first(place + column * 4, left - column))


@inner
def copy_results(source: int, source_row: int, rows: int, columns: int, c: int, c_row: int) -> None:
    """Columns of some rows to where they belong."""
    for row in range(rows):
        for column in range(0, columns, 16):
            store_f32_first(c + row * c_row + column * 4, load_f32(source + row * source_row + column * 4), columns - column)


@inner
def slowness_of(tiles: int) -> int:
    """Power of two of tiles, not more than there are: each asks for as small a share of what comes next."""
    found = 0
    while 2 << found <= tiles:
        found += 1
    return found


@inner
def copy_rows(a: int, a_row: int, rows: int, steps: int, copy: int) -> None:
    """Some steps of rows, ``COPY_ROW_BYTES`` apart."""
    for row in range(rows):
        for step in range(0, steps, 16):
            left = steps - step
            store_f32_first(copy + row * COPY_ROW_BYTES + step * 4, load_f32_first(a + row * a_row + step * 4, left), left)


@inner
def multiply_panels(
    a: int,
    a_row: int,
    rows: int,
    steps: int,
    is_first: int,
    b: int,
    panels: int,
    c: int,
    c_row: int,
    left: int,
    rest: int,
    following: int,
    b_row: int,
) -> None:
    """Product of some rows and steps with some panels, the columns of the last one maybe into ``rest``."""
    tiles = (rows + ROWS - 1) // ROWS
    slowness = slowness_of(tiles)
    for index in range(tiles):
        first = rows * index // tiles
        count, x = rows * (index + 1) // tiles - first, a + first * a_row
        soon = following + min(index * (steps >> slowness), steps) * b_row
        for column in range(0, left, WIDTH):
            target, target_row = c + first * c_row + column * 4, c_row
            if left - column < WIDTH:
                target, target_row = rest + first * WIDTH * 4, WIDTH * 4
            panel = panels + column // WIDTH * PANEL_BYTES
            ahead = soon + column * 4
            if index == 0 and tiles > 1 and left - column >= WIDTH:
                copying_tile(
                    count, b + column * 4, b_row, panel, x, a_row, steps, target, target_row, is_first, ahead, b_row, slowness
                )
            else:
                tile(count, panel, WIDTH * 4, 64, x, a_row, steps, target, target_row, is_first, ahead, b_row, slowness)


@inner
def transpose_panel(a: int, a_row: int, rows: int, k: int, width: int, target: int, spare: int) -> None:
    """Rows as columns of a panel of some width, up to 16 of them; 16 lanes are written for each step."""
    for step in range(0, k, 16):
        transpose_rows(a + step * 4, a_row, rows, k - step, spare)
        for index in range(min(16, k - step)):
            store_f32(target + (step + index) * width * 4, load_f32(spare + index * 64))
