"""Panels of B (KC, NR), and the loops over register tiles that multiply rows of A with them."""

from __future__ import annotations

from ort_sdk_cpu.gemm.arguments.blocking import A_COPY_ROW_BYTES, PANEL_BYTES
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS, packing_tile, tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, prefetch, store_f32, store_f32_masked
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = ["NR", "copy_panel", "copy_results", "copy_rows", "multiply_panels", "prefetch_shift", "transpose_panel"]

NR = 16 * NR_VECTORS
"""Columns of a panel."""
# About the latency of memory, in steps of a copy.
_ROWS_AHEAD = 12
"""Rows prefetched before they are copied."""


@inline
def copy_panel(b: int, ldb: int, steps: int, left: int, panel: int) -> None:
    """The last columns of B as a panel, zeros behind them."""
    ahead = _ROWS_AHEAD * ldb
    for step in range(steps):
        source, target = b + step * ldb, panel + step * NR * 4
        for column in range(0, NR, 16):
            prefetch(source + ahead + column * 4)
            store_f32(target + column * 4, load_f32_masked(source + column * 4, left - column))


@inline
def copy_results(source: int, source_row: int, rows: int, columns: int, c: int, ldc: int) -> None:
    """Columns of some rows, of a whole panel, into C, which has fewer."""
    for row in range(rows):
        for column in range(0, columns, 16):
            store_f32_masked(c + row * ldc + column * 4, load_f32(source + row * source_row + column * 4), columns - column)


@inline
def prefetch_shift(tiles: int) -> int:
    """Log2 of the most tiles that share the prefetching of the next panel: each prefetches as small a part of it."""
    # A power of two: tiles divide their step counts by it with a shift.
    shift = 0
    while 2 << shift <= tiles:
        shift += 1
    return shift


@inline
def copy_rows(a: int, lda: int, rows: int, steps: int, copy: int) -> None:
    """Some steps of rows, ``A_COPY_ROW_BYTES`` apart."""
    for row in range(rows):
        for step in range(0, steps, 16):
            left = steps - step
            store_f32_masked(copy + row * A_COPY_ROW_BYTES + step * 4, load_f32_masked(a + row * lda + step * 4, left), left)


@inline
def multiply_panels(
    a: int,
    lda: int,
    rows: int,
    steps: int,
    is_first: int,
    b: int,
    panels: int,
    c: int,
    ldc: int,
    left: int,
    last_results: int,
    following: int,
    ldb: int,
) -> None:
    """Macro-kernel: some rows and steps of A times panels of ``left`` columns; the last ones, if few, to ``last_results``.

    The loop over panels is inside the loop over register tiles of rows, so BLIS's two innermost loops are swapped: rows of A,
    which are not packed, stay in the first cache, and panels, which are, come from the second one in order.
    """
    # Rows are shared evenly: one tile of few rows, which waits for its own sums, costs as much as one of many.
    tiles = (rows + MR - 1) // MR
    shift = prefetch_shift(tiles)
    for index in range(tiles):
        first = rows * index // tiles
        count, x = rows * (index + 1) // tiles - first, a + first * lda
        soon = following + min(index * (steps >> shift), steps) * ldb
        for column in range(0, left, NR):
            target, target_row = c + first * ldc + column * 4, ldc
            if left - column < NR:
                target, target_row = last_results + first * NR * 4, NR * 4
            panel, ahead = panels + column // NR * PANEL_BYTES, soon + column * 4
            # Packing costs a pass over B less where the first tile, which reads it anyway, writes the panel.
            if index == 0 and tiles > 1 and left - column >= NR:
                packing_tile(count, b + column * 4, ldb, panel, x, lda, steps, target, target_row, is_first, ahead, ldb, shift)
            else:
                tile(count, panel, NR * 4, 64, x, lda, steps, target, target_row, is_first, ahead, ldb, shift)


@inline
def transpose_panel(a: int, lda: int, rows: int, k: int, width: int, target: int, workspace: int) -> None:
    """Rows as columns of a panel of some width, up to 16 of them; 16 lanes are written for each step."""
    for step in range(0, k, 16):
        transpose_rows(a + step * 4, lda, rows, k - step, workspace)
        for index in range(min(16, k - step)):
            store_f32(target + (step + index) * width * 4, load_f32(workspace + index * 64))
