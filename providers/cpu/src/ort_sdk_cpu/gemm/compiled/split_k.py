"""Products of few float32 rows with a matrix (K, N) of which each thread reads some rows, all of them from end to end.

A processor brings memory that is read in order faster than parts of rows, which are what threads read that share the columns.
Each thread has sums of its own, which are added when all are there. Records are those of the tasks of ``products``.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.microkernels.sgemm import spread_tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, store_f32, store_f32_first

from .panels import WIDTH, copy_panel

__all__ = ["add_shares", "sum_share"]

_STEPS = 32
"""Rows of the matrix read side by side: as many as a processor sees at a time how they go on."""


@inner
def _sums_row(columns: int) -> int:
    """Bytes from row to row of a thread's sums: whole tiles, and rows that do not meet in the cache."""
    return (columns + WIDTH - 1) // WIDTH * WIDTH * 4 + 64


@inner
def sum_share(record: int, start: int, stop: int, sums: int) -> None:
    """Product with the matrix's rows from ``start`` to ``stop``; of none, zeros."""
    rows, columns, a_row, b_row = argument(record, 5), argument(record, 6), argument(record, 8), argument(record, 9)
    sums_row, whole = _sums_row(columns), columns // WIDTH * WIDTH
    panel = sums + rows * sums_row
    if start == stop:
        for place in range(sums, panel, 64):
            store_f32(place, zero_f32())
    for step in range(start, stop, _STEPS):
        steps, is_first = min(_STEPS, stop - step), int(step == start)
        x, b = argument(record, 0) + step * 4, argument(record, 1) + step * b_row
        for column in range(0, whole, WIDTH):
            spread_tile(rows, b + column * 4, b_row, x, a_row, 4, steps, sums + column * 4, sums_row, is_first)
        if whole < columns:
            copy_panel(b + whole * 4, b_row, steps, columns - whole, panel)
            spread_tile(rows, panel, WIDTH * 4, x, a_row, 4, steps, sums + whole * 4, sums_row, is_first)


@inner
def add_shares(record: int, first: int, stop: int, parts: int) -> None:
    """Write some columns of the result: the sums of all threads, which begin their working memory, together."""
    sums, sums_row, step = argument(record, 4), _sums_row(argument(record, 6)), argument(record, 22)
    for row in range(argument(record, 5)):
        source, target = sums + row * sums_row, argument(record, 2) + row * argument(record, 10)
        for column in range(first, stop, 16):
            value = load_f32(source + column * 4)
            for part in range(1, parts):
                value = add(value, load_f32(source + part * step + column * 4))
            store_f32_first(target + column * 4, value, stop - column)
