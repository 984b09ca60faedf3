"""Matrix products of float32 whose second operand was laid out for them: C = f(alpha * A B + beta * D).

Arguments are those of ``products``. B is in panels of ``WIDTH`` columns, ``b_row`` bytes from panel to panel; a panel has the
columns' numbers of one step along K after the other.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.microkernels.sgemm import ROWS
from ort_sdk_cpu.gemm.microkernels.sgemm_packed import AHEAD_BYTES, STEP_BYTES, STEPS_AT_ONCE, packed_tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import load_f32_first, store_f32

from .epilogue import finish_part
from .panels import GROUP, STEPS, WIDTH, copy_results, transpose_panel
from .partition import job_bounds, job_count

__all__ = ["pack_columns", "pack_rows", "packed_panels"]

_SPARE_BYTES = 1024


@inner
def _group_rows(a: int, a_row: int, rows: int, steps: int, groups: int, spare: int) -> None:
    """Some steps of some rows, in the groups of their tiles, one behind the other."""
    tiles = (rows + ROWS - 1) // ROWS
    for index in range(tiles):
        first = rows * index // tiles
        count = rows * (index + 1) // tiles - first
        transpose_panel(a + first * a_row, a_row, count, steps, count, groups + first * steps * 4, spare)


@inner
def _multiply_panel(
    groups: int, rows: int, steps: int, panel: int, following: int, target: int, target_row: int, is_first: int
) -> None:
    """Product of groups of rows and some steps of a panel; each tile asks for as much of what comes next."""
    tiles = (rows + ROWS - 1) // ROWS
    step = (AHEAD_BYTES // 64 + tiles - 1) // tiles * 64
    brought, most = steps // STEPS_AT_ONCE * step, steps * STEP_BYTES
    for index in range(tiles):
        first = rows * index // tiles
        count = rows * (index + 1) // tiles - first
        start = min(index * brought, most)
        group, place = groups + first * steps * 4, target + first * target_row
        packed_tile(count, panel, group, steps, place, target_row, is_first, following + start, step if start < most else 0)


@inner
def _places(record: int, batch: int, first_row: int, first: int) -> tuple[int, int, int]:
    """Addresses of a part's rows of A and of the result, and of its first panel."""
    a = argument(record, 0) + batch * argument(record, 11) + first_row * argument(record, 8)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * argument(record, 10)
    return a, c, argument(record, 1) + batch * argument(record, 12) + first // WIDTH * argument(record, 9)


@inner
def _by_panels(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int) -> None:
    """Part of a product whose rows are one tile's, panel after panel: each of these is read from its beginning to its end."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    rest, groups, blocks = work + _SPARE_BYTES, work + _SPARE_BYTES + rows * WIDTH * 4, (k + STEPS - 1) // STEPS
    a, c, panels = _places(record, batch, first_row, first)
    if rows == 1:
        groups = a
    else:
        transpose_panel(a, a_row, rows, k, rows, groups, work)
    for column in range(first, stop, WIDTH):
        left, panel = stop - column, panels + (column - first) // WIDTH * b_row
        target, target_row = (c + column * 4, c_row) if left >= WIDTH else (rest, WIDTH * 4)
        for block in range(blocks):
            start, end = k * block // blocks, k * (block + 1) // blocks
            group, place = groups + start * rows * 4, panel + start * STEP_BYTES
            _multiply_panel(group, rows, end - start, place, place + STEPS * STEP_BYTES, target, target_row, int(block == 0))
        if left < WIDTH:
            copy_results(rest, WIDTH * 4, rows, left, c + column * 4, c_row)
    finish_part(record, batch, first_row, rows, first, stop - first)


@inner
def _by_blocks(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int) -> None:
    """Part of a product of more rows, some steps of all panels at a time: those of the rows stay in the second cache."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    rest, groups, blocks = work + _SPARE_BYTES, work + _SPARE_BYTES + rows * WIDTH * 4, (k + STEPS - 1) // STEPS
    a, c, panels = _places(record, batch, first_row, first)
    for block in range(blocks):
        start, end, begun = k * block // blocks, k * (block + 1) // blocks, first
        _group_rows(a + start * 4, a_row, rows, end - start, groups, work)
        for column in range(first, stop, WIDTH):
            left, panel = stop - column, panels + (column - first) // WIDTH * b_row + start * STEP_BYTES
            following = panel + b_row if left > WIDTH else panels + end * STEP_BYTES
            target, target_row = (c + column * 4, c_row) if left >= WIDTH else (rest, WIDTH * 4)
            _multiply_panel(groups, rows, end - start, panel, following, target, target_row, int(block == 0))
            next_column = min(column + WIDTH, stop)
            if block == blocks - 1 and (next_column == stop or next_column - begun == GROUP * WIDTH):
                if left < WIDTH:
                    copy_results(rest, WIDTH * 4, rows, left, c + column * 4, c_row)
                finish_part(record, batch, first_row, rows, begun, next_column - begun)
                begun = next_column


@task
def packed_panels(record: int, part: int, parts: int) -> None:
    """Panels are read where they lie, A's rows are grouped for all panels of a part."""
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, WIDTH)
        pieces = (rows + at_once - 1) // at_once
        for piece in range(pieces):
            row = rows * piece // pieces
            count = rows * (piece + 1) // pieces - row
            if count <= ROWS:
                _by_panels(record, batch, first_row + row, count, first, stop, work)
            else:
                _by_blocks(record, batch, first_row + row, count, first, stop, work)


@task
def pack_columns(record: int, part: int, parts: int) -> None:
    """(B, panels; K, N, b_row, panel bytes): panels of a matrix (K, N)."""
    k, n, b_row = argument(record, 2), argument(record, 3), argument(record, 4)
    panels = (n + WIDTH - 1) // WIDTH
    for panel in range(panels * part // parts, panels * (part + 1) // parts):
        place, target = argument(record, 0) + panel * WIDTH * 4, argument(record, 1) + panel * argument(record, 5)
        for step in range(k):
            for column in range(0, WIDTH, 16):
                value = load_f32_first(place + step * b_row + column * 4, n - panel * WIDTH - column)
                store_f32(target + step * STEP_BYTES + column * 4, value)


@task
def pack_rows(record: int, part: int, parts: int) -> None:
    """(B, panels; K, N, b_row, panel bytes; work): panels of the transpose of a matrix (N, K); no zeros behind its rows."""
    k, n, b_row, spare = argument(record, 2), argument(record, 3), argument(record, 4), argument(record, 6) + part * _SPARE_BYTES
    units = (n + 15) // 16
    for unit in range(units * part // parts, units * (part + 1) // parts):
        place, column = argument(record, 0) + unit * 16 * b_row, unit * 16
        target = argument(record, 1) + column // WIDTH * argument(record, 5) + column % WIDTH * 4
        transpose_panel(place, b_row, min(16, n - column), k, WIDTH, target, spare)
