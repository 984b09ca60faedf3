"""Matrix products of float32 that read the second operand where it lies: C = f(alpha * A B + beta * D), for stacks of matrices.

All tasks take the same arguments: (a, b, c, addend, work; M, N, K; a_row, b_row, c_row; a_step, b_step, c_step; addend_row;
batch, activation; alpha, beta, slope; row_parts, column_parts; work_step, rows_at_once). The first are addresses, ``*_row`` bytes
from row to row (0 for an addend that is one row; address 0 for none), ``*_step`` bytes from matrix to matrix of a stack of
``batch``. A job is a part of the rows and columns of one matrix.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.microkernels.sgemm import ROWS, TALL_ROWS, direct_tile, keeping_tile, narrow_tile, tile
from ort_sdk_cpu.gemm.microkernels.sgemv import FEW_ROWS, add_row, add_rows, add_sums, all_dots, rows_added
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.barrier import barrier
from ort_sdk_cpu.simd.fp16 import SPARE_BYTES, columns_times_row, rows_times_row, widen_columns, widen_rows
from ort_sdk_cpu.simd.memory import LAST_BYTE, load_f32, prefetch_second, store_f32, store_f32_first
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .epilogue import finish_part
from .panels import (
    COPY_ROW_BYTES,
    GROUP,
    PANEL_BYTES,
    STEPS,
    WIDTH,
    copy_panel,
    copy_results,
    copy_rows,
    multiply_panels,
    transpose_panel,
)
from .partition import job_bounds, job_count
from .split_k import add_shares, sum_share

__all__ = [
    "dots_of_rows",
    "halves_in_columns",
    "halves_in_rows",
    "panels_of_columns",
    "panels_of_rows",
    "sums_of_columns",
    "sums_of_shares",
]

_rows_added = inner(rows_added)
_MEETING_BYTES = 2048
"""Rows so far apart, or a multiple of that, are copied: more of them than the first cache holds meet in it."""
_ROW_STEPS = 128
"""Steps of rows summed before their sum is added: fewer numbers are added one after the other, and less is rounded off."""
_SUMS = 4096
"""Sums that are made at a time: they stay near the core."""
_BLOCK = 192
"""Rows of a transposed matrix multiplied at a time."""
_DOTTED_BYTES = 1 << 16
"""Bytes of them that stay in the caches near the core while they are multiplied by row after row."""


@inner
def _direct_columns(
    b: int,
    b_row: int,
    columns: int,
    left: int,
    x: int,
    x_row: int,
    rows: int,
    steps: int,
    c: int,
    c_row: int,
    is_first: int,
    following: int,
    panel: int,
) -> None:
    """Product of up to ``TALL_ROWS`` rows with columns that are read once; ``following`` is what comes ``left`` columns on.

    More than ``ROWS`` rows are two tiles, of which the second reads what the first one keeps in a panel.
    """
    others, rest, rest_c = rows - ROWS, x + ROWS * x_row, ROWS * c_row
    for column in range(0, columns, WIDTH):
        soon, place, target = column + 2 * WIDTH, b + column * 4, c + column * 4
        source = (b if soon < left else following) + soon * 4 + LAST_BYTE
        if others > 0:
            keeping_tile(place, b_row, panel, x, x_row, steps, target, c_row, is_first, source)
            tile(others, panel, WIDTH * 4, 64, rest, x_row, steps, target + rest_c, c_row, is_first, panel, 0, 0)
        else:
            direct_tile(rows, place, b_row, x, x_row, steps, target, c_row, is_first, source)


@inner
def _part_of_columns(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int) -> None:
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
    b = argument(record, 1) + batch * argument(record, 12)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
    is_direct = rows <= TALL_ROWS
    rest = work + (1 if is_direct else GROUP) * PANEL_BYTES
    own_rows = rest + rows * WIDTH * 4
    panels = max(1, (stop - first + WIDTH - 1) // WIDTH)
    groups, blocks = (panels + GROUP - 1) // GROUP, (k + STEPS - 1) // STEPS
    width = (panels + groups - 1) // groups * WIDTH
    for block in range(blocks):
        start, end = k * block // blocks, k * (block + 1) // blocks
        steps, is_first, is_last = end - start, int(block == 0), block == blocks - 1
        x, x_row = a + start * 4, a_row
        if a_row % _MEETING_BYTES == 0:
            copy_rows(x, a_row, rows, steps, own_rows)
            x, x_row = own_rows, COPY_ROW_BYTES
        for column in range(first, stop, width):
            left = min(stop - column, width)
            place, target = b + start * b_row + column * 4, c + column * 4
            whole = left // WIDTH * WIDTH
            direct = whole if is_direct else 0
            if direct:
                following = b + end * b_row + first * 4 - (stop - column) * 4
                _direct_columns(
                    place, b_row, direct, stop - column, x, x_row, rows, steps, target, c_row, is_first, following, work
                )
            if whole < left:
                copy_panel(place + whole * 4, b_row, steps, left - whole, work + (whole - direct) // WIDTH * PANEL_BYTES)
            if direct < left:
                following = LAST_BYTE + (b + end * b_row + first * 4 if column + left == stop else place + left * 4)
                y, z, others = place + direct * 4, target + direct * 4, left - direct
                multiply_panels(x, x_row, rows, steps, is_first, y, work, z, c_row, others, rest, following, b_row)
            if is_last:
                if whole < left:
                    copy_results(rest, WIDTH * 4, rows, left - whole, target + whole * 4, c_row)
                finish_part(record, batch, first_row, rows, column, left)


@inner
def _added_rows(a: int, a_row: int, b: int, b_row: int, c: int, c_row: int, rows: int, k: int, columns: int, sums: int) -> None:
    """Product of few rows with columns, as sums of B's rows: as many columns at a time as the sums stay near the core for."""
    count, blocks = _rows_added(rows), (k + STEPS - 1) // STEPS
    most = _SUMS // rows // 16 * 16
    sums_row = most * 4 + 64
    for place in range(sums, sums + rows * sums_row, 64):
        store_f32(place, zero_f32())
    for first in range(0, columns, most):
        width, place = min(most, columns - first), b + first * 4
        for block in range(blocks):
            start, stop = k * block // blocks, k * (block + 1) // blocks
            whole = start + (stop - start) // count * count
            for step in range(start, whole, count):
                add_rows(rows, place + step * b_row, b_row, a + step * 4, a_row, width, sums, sums_row)
            for step in range(whole, stop):
                add_row(rows, place + step * b_row, b_row, a + step * 4, a_row, width, sums, sums_row)
            add_sums(sums, sums_row, rows, width, c + first * 4, c_row, int(start == 0))


@inner
def _width_of_group(left: int) -> int:
    """Columns of a panel for so many rows."""
    return 16 if left <= 16 else WIDTH


@inner
def _transposed_rows(a: int, a_row: int, rows: int, k: int, panels: int, spare: int) -> None:
    """All rows as panels of columns, one behind the other."""
    for group in range(0, rows, WIDTH):
        width = _width_of_group(rows - group)
        for start in range(group, min(group + width, rows), 16):
            target = panels + group * k * 4 + (start - group) * 4
            transpose_panel(a + start * a_row, a_row, min(16, rows - start), k, width, target, spare)


@inner
def _ask_for_rows(place: int, row_bytes: int, rows: int, steps: int) -> None:
    """Ask for some steps of rows, each of which is read number by number."""
    for row in range(rows):
        for step in range(0, steps, 16):
            prefetch_second(place + row * row_bytes + step * 4 + LAST_BYTE)


@inner
def _block_of_rows(
    panels: int,
    rows: int,
    b: int,
    b_row: int,
    count: int,
    k: int,
    start: int,
    steps: int,
    sums: int,
    sums_row: int,
    own_rows: int,
    following: int,
) -> None:
    """Sums of the products of some rows of B with all panels, for some steps."""
    tiles, is_copied = (count + ROWS - 1) // ROWS, b_row % 4096 == 0 and rows > WIDTH
    for index in range(tiles):
        first = count * index // tiles
        height = count * (index + 1) // tiles - first
        x, x_row = b + first * b_row + start * 4, b_row
        _ask_for_rows(x + height * b_row if index + 1 < tiles else following, b_row, height, steps)
        if is_copied:
            copy_rows(x, b_row, height, steps, own_rows)
            x, x_row = own_rows, COPY_ROW_BYTES
        for group in range(0, rows, WIDTH):
            width, target = _width_of_group(rows - group), sums + first * sums_row + group * 4
            panel = panels + group * k * 4 + start * width * 4
            if width < WIDTH:
                narrow_tile(height, panel, 64, 64, x, x_row, steps, target, sums_row, int(start == 0), panel, 0, 0)
            else:
                tile(height, panel, width * 4, 64, x, x_row, steps, target, sums_row, int(start == 0), panel, 0, 0)


@inner
def _write_transposed(sums: int, sums_row: int, count: int, rows: int, c: int, c_row: int, spare: int) -> None:
    for first in range(0, count, 16):
        for row in range(0, rows, 16):
            transpose_rows(sums + first * sums_row + row * 4, sums_row, min(16, count - first), 16, spare)
            for index in range(min(16, rows - row)):
                store_f32_first(c + (row + index) * c_row + first * 4, load_f32(spare + index * 64), count - first)


@inner
def _part_of_rows(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int) -> None:
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
    b = argument(record, 1) + batch * argument(record, 12)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
    sums_row = (rows + WIDTH - 1) // WIDTH * WIDTH * 4 + 64
    spare, own_rows, sums = work, work + 1024, work + 1024 + ROWS * COPY_ROW_BYTES
    panels, blocks = sums + _BLOCK * sums_row, (k + _ROW_STEPS - 1) // _ROW_STEPS
    _transposed_rows(a, a_row, rows, k, panels, spare)
    for column in range(first, stop, _BLOCK):
        count = min(_BLOCK, stop - column)
        for block in range(blocks):
            start = k * block // blocks
            steps = k * (block + 1) // blocks - start
            place = b + column * b_row
            following = place + count * b_row if block + 1 == blocks else place + (start + steps) * 4
            _block_of_rows(panels, rows, place, b_row, count, k, start, steps, sums, sums_row, own_rows, following)
        _write_transposed(sums, sums_row, count, rows, c + column * 4, c_row, spare)
        finish_part(record, batch, first_row, rows, column, count)


@task
def panels_of_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N): panels of it are copied, unless there are so few rows that it is read once."""
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, WIDTH)
        for row in range(0, rows, at_once):
            _part_of_columns(record, batch, first_row + row, min(at_once, rows - row), first, stop, work)


@task
def panels_of_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K): A's rows become panels, B is read as it lies."""
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, 16)
        for row in range(0, rows, at_once):
            _part_of_rows(record, batch, first_row + row, min(at_once, rows - row), first, stop, work)


@task
def dots_of_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K), A has few rows: dot products, of so many rows of B at a time that they stay for all rows of A."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, 16)
        a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
        b = argument(record, 1) + batch * argument(record, 12)
        c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
        together = stop - first if rows <= FEW_ROWS else max(16, _DOTTED_BYTES // (k * 4) // 16 * 16)
        for start in range(first, stop, together):
            for row in range(0, rows, FEW_ROWS):
                x, y, count = a + row * a_row, c + row * c_row + start * 4, min(together, stop - start)
                all_dots(min(FEW_ROWS, rows - row), b + start * b_row, b_row, count, x, a_row, k, y, c_row)
        finish_part(record, batch, first_row, rows, first, stop - first)


@task
def sums_of_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N), A has up to ``SUM_ROWS`` rows: sums of B's rows."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, WIDTH)
        a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
        b = argument(record, 1) + batch * argument(record, 12) + first * 4
        c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row + first * 4
        _added_rows(a, a_row, b, b_row, c, c_row, rows, k, stop - first, argument(record, 4) + part * argument(record, 22))
        finish_part(record, batch, first_row, rows, first, stop - first)


@task
def sums_of_shares(record: int, part: int, parts: int) -> None:
    """B is (K, N), one matrix; A has up to ``ROWS`` rows: each thread multiplies with some of B's rows. For teams."""
    m, n, k = argument(record, 5), argument(record, 6), argument(record, 7)
    sum_share(record, k * part // parts, k * (part + 1) // parts, argument(record, 4) + part * argument(record, 22))
    barrier()
    vectors = (n + 15) // 16
    first, stop = vectors * part // parts * 16, min(vectors * (part + 1) // parts * 16, n)
    add_shares(record, first, stop, parts)
    finish_part(record, 0, 0, m, first, stop - first)


@inner
def _product_with_panel(a: int, a_row: int, rows: int, steps: int, panel: int, c: int, c_row: int, is_first: int) -> None:
    """Product of some rows and steps with one panel."""
    tiles = (rows + ROWS - 1) // ROWS
    for index in range(tiles):
        first, stop = rows * index // tiles, rows * (index + 1) // tiles
        x, y = a + first * a_row, c + first * c_row
        tile(stop - first, panel, WIDTH * 4, 64, x, a_row, steps, y, c_row, is_first, panel, 0, 0)


@inner
def _part_of_halves(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int, is_rows: int) -> None:
    """Part of a product with float16, (N, K) if ``is_rows``: panels of it are made float32, one at a time."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
    b = argument(record, 1) + batch * argument(record, 12)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
    panel, rest, blocks = work + SPARE_BYTES, work + SPARE_BYTES + PANEL_BYTES, (k + STEPS - 1) // STEPS
    for block in range(blocks):
        start = k * block // blocks
        steps, is_first = k * (block + 1) // blocks - start, int(block == 0)
        x, x_row = a + start * 4, a_row
        if a_row % 4096 == 0:
            x, x_row = rest + rows * WIDTH * 4, COPY_ROW_BYTES
            copy_rows(a + start * 4, a_row, rows, steps, x)
        for column in range(first, stop, WIDTH):
            left = stop - column
            if is_rows:
                widen_rows(b + column * b_row + start * 2, b_row, steps, left, panel, WIDTH, work)
            else:
                widen_columns(b + start * b_row + column * 2, b_row, steps, left, panel, WIDTH)
            target, target_row = (c + column * 4, c_row) if left >= WIDTH else (rest, WIDTH * 4)
            _product_with_panel(x, x_row, rows, steps, panel, target, target_row, is_first)
            if left < WIDTH and block == blocks - 1:
                copy_results(rest, WIDTH * 4, rows, left, c + column * 4, c_row)
    finish_part(record, batch, first_row, rows, first, stop - first)


@inner
def _products_with_halves(record: int, part: int, parts: int, is_rows: int) -> None:
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(job_count(record) * part // parts, job_count(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = job_bounds(record, job, WIDTH)
        if rows > 1:
            for row in range(0, rows, at_once):
                _part_of_halves(record, batch, first_row + row, min(at_once, rows - row), first, stop, work, is_rows)
            continue
        k, b_row, columns = argument(record, 7), argument(record, 9), stop - first
        a = argument(record, 0) + batch * argument(record, 11) + first_row * argument(record, 8)
        b = argument(record, 1) + batch * argument(record, 12) + first * (b_row if is_rows else 2)
        c = argument(record, 2) + batch * argument(record, 13) + first_row * argument(record, 10) + first * 4
        if is_rows:
            rows_times_row(a, b, b_row, k, columns * rows, c)
        else:
            columns_times_row(a, b, b_row, k, columns * rows, c)
        finish_part(record, batch, first_row, rows, first, columns)


@task
def halves_in_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N) of float16: panels of it are widened, unless A is one row."""
    _products_with_halves(record, part, parts, 0)


@task
def halves_in_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K) of float16: the same."""
    _products_with_halves(record, part, parts, 1)
