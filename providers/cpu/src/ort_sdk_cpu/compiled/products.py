"""Matrix products of float32 that read the second operand where it lies: C = f(alpha * A B + beta * D), for stacks of matrices.

All tasks take the same arguments: (a, b, c, addend, work; M, N, K; a_row, b_row, c_row; a_step, b_step, c_step; addend_row;
batch, activation; alpha, beta, slope; row_parts, column_parts; work_step, rows_at_once). The first are addresses, ``*_row`` bytes
from row to row (0 for an addend that is one row; address 0 for none), ``*_step`` bytes from matrix to matrix of a stack of
``batch``. A job is a part of the rows and columns of one matrix.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd import functions
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, maximum, minimum, multiply, splat_f32, zero_f32
from ort_sdk_cpu.simd.float_rows import FEW_ROWS, add_row, add_rows, add_sums, all_dots, rows_added
from ort_sdk_cpu.simd.float_tiles import COLUMNS, ROWS, copying_tile, narrow_tile, tile, wide_columns, wide_tile
from ort_sdk_cpu.simd.halves import SPARE_BYTES, columns_times_row, rows_times_row, widen_columns, widen_rows
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, prefetch, store_f32, store_f32_first
from ort_sdk_cpu.simd.records import argument, number
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = [
    "dots_of_rows",
    "halves_in_columns",
    "halves_in_rows",
    "panels_of_columns",
    "panels_of_rows",
    "rows_of_columns",
    "sums_of_columns",
]

_wide_columns = inner(wide_columns)
_rows_added = inner(rows_added)
_WIDTH = 16 * COLUMNS
"""Columns of a panel."""
_STEPS = 128
"""Steps along K for which a panel is made: so it stays in the cache near the core."""
_FEW_STEPS, _FEWEST_STEPS = 48, 16
"""The same of two tiles of rows, and of one: memory takes the time then, and gives most if few rows of it are read far along."""
_ROW_STEPS = 128
"""Steps of rows summed before their sum is added: fewer numbers are added one after the other, and less is rounded off."""
_PANEL = (_STEPS + 1) * _WIDTH * 4
"""Most bytes of a panel."""
_COPY_ROW = _STEPS * 4 + 64
"""Bytes from row to row of copied rows: whatever number of them, they do not meet in the cache."""
_SUMS = 4096
"""Sums that are made at a time: they stay near the core."""
_GROUP, _LOW_GROUP = 8, 16
"""Panels made at a time, at most: of ``_STEPS``, and of fewer."""
_BLOCK = 192
"""Rows of a transposed matrix multiplied at a time."""
_DOTTED_BYTES = 1 << 16
"""Bytes of them that stay in the caches near the core while they are multiplied by row after row."""
_AHEAD = 12
"""Rows asked for before they are read."""
_LAST_BYTE = 63
"""Of a cache line. A vector in two lines, asked for by this byte, brings the second: the first came with its neighbour."""


@inner
def _finish(record: int, c: int, c_row: int, rows: int, columns: int, addend: int, addend_row: int) -> None:
    """Function of alpha * C + beta * addend, in place."""
    factors, shares = splat_f32(number(record, 17)), splat_f32(number(record, 18))
    activation, slopes = argument(record, 16), splat_f32(number(record, 19))
    for row in range(rows):
        place = c + row * c_row
        for column in range(0, columns, 16):
            left = columns - column
            value = multiply(load_f32_first(place + column * 4, left), factors)
            if addend:
                value = fused_multiply_add(load_f32_first(addend + row * addend_row + column * 4, left), shares, value)
            if activation == 1:
                value = fused_multiply_add(minimum(value, zero_f32()), slopes, maximum(value, zero_f32()))
            elif activation == 2:
                value = functions.sigmoid(value)
            elif activation == 3:
                value = functions.tanh(value)
            elif activation == 4:
                value = functions.gelu(value)
            store_f32_first(place + column * 4, value, left)


@inner
def _finish_part(record: int, batch: int, first_row: int, rows: int, first: int, columns: int) -> None:
    c, c_row = argument(record, 2) + batch * argument(record, 13), argument(record, 10)
    addend, addend_row = argument(record, 3), argument(record, 14)
    if addend:
        addend += first_row * addend_row + first * 4
    if addend or argument(record, 16) or number(record, 17) != np.float32(1):
        _finish(record, c + first_row * c_row + first * 4, c_row, rows, columns, addend, addend_row)


@inner
def _copy_panel(b: int, b_row: int, steps: int, left: int, panel: int) -> None:
    """The last columns of a matrix, zeros behind them."""
    soon = _AHEAD * b_row
    for step in range(steps):
        place, target = b + step * b_row, panel + step * _WIDTH * 4
        for column in range(0, _WIDTH, 16):
            prefetch(place + soon + column * 4)
            store_f32(target + column * 4, load_f32_first(place + column * 4, left - column))


@inner
def _copy_results(source: int, source_row: int, rows: int, columns: int, c: int, c_row: int) -> None:
    for row in range(rows):
        for column in range(0, columns, 16):
            store_f32_first(c + row * c_row + column * 4, load_f32(source + row * source_row + column * 4), columns - column)


@inner
def _slowness(tiles: int) -> int:
    """Power of two of tiles, not more than there are."""
    found = 0
    while 2 << found <= tiles:
        found += 1
    return found


@inner
def _copy_of_rows(a: int, a_row: int, rows: int, steps: int, copy: int) -> None:
    for row in range(rows):
        for step in range(0, steps, 16):
            left = steps - step
            store_f32_first(copy + row * _COPY_ROW + step * 4, load_f32_first(a + row * a_row + step * 4, left), left)


@inner
def _steps_of(rows: int) -> int:
    """Steps along K that so many rows are multiplied at a time."""
    few = _FEW_STEPS if rows > ROWS else _FEWEST_STEPS
    return few if rows <= 2 * ROWS else _STEPS


@inner
def _group(
    a: int,
    a_row: int,
    rows: int,
    steps: int,
    is_first: int,
    b: int,
    panels: int,
    panel_bytes: int,
    c: int,
    c_row: int,
    left: int,
    rest: int,
    following: int,
    b_row: int,
) -> None:
    """Product of some rows and steps with some panels, the columns of the last one maybe into ``rest``."""
    tiles = (rows + ROWS - 1) // ROWS
    slowness = _slowness(tiles)
    for index in range(tiles):
        first = rows * index // tiles
        count, x = rows * (index + 1) // tiles - first, a + first * a_row
        soon = following + min(index * (steps >> slowness), steps) * b_row
        for column in range(0, left, _WIDTH):
            target, target_row = c + first * c_row + column * 4, c_row
            if left - column < _WIDTH:
                target, target_row = rest + first * _WIDTH * 4, _WIDTH * 4
            panel = panels + column // _WIDTH * panel_bytes
            ahead = soon + column * 4
            if index == 0 and tiles > 1 and left - column >= _WIDTH:
                copying_tile(
                    count, b + column * 4, b_row, panel, x, a_row, steps, target, target_row, is_first, ahead, b_row, slowness
                )
            else:
                tile(count, panel, _WIDTH * 4, 64, x, a_row, steps, target, target_row, is_first, ahead, b_row, slowness)


@inner
def _two_tiles(
    a: int,
    a_row: int,
    rows: int,
    steps: int,
    is_first: int,
    b: int,
    panels: int,
    panel_bytes: int,
    c: int,
    c_row: int,
    left: int,
    rest: int,
    following: int,
    b_row: int,
) -> None:
    """As ``_group`` of so few rows, a panel at a time, which stays in the cache next to the core."""
    half = rows // 2
    later, x = steps // 2 * b_row, a + half * a_row
    for column in range(0, left, _WIDTH):
        panel, target, target_row = panels, c + column * 4, c_row
        ahead = _LAST_BYTE + (b + (column + _WIDTH) * 4 if column + _WIDTH < left else following)
        if left - column < _WIDTH:
            panel, target, target_row = panels + column // _WIDTH * panel_bytes, rest, _WIDTH * 4
            tile(half, panel, _WIDTH * 4, 64, a, a_row, steps, target, target_row, is_first, ahead, b_row, 1)
        else:
            copying_tile(half, b + column * 4, b_row, panel, a, a_row, steps, target, target_row, is_first, ahead, b_row, 1)
        y = target + half * target_row
        tile(rows - half, panel, _WIDTH * 4, 64, x, a_row, steps, y, target_row, is_first, ahead + later, b_row, 1)


@inner
def _part_of_columns(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int) -> None:
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
    b = argument(record, 1) + batch * argument(record, 12)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
    rest = work + _GROUP * _PANEL
    own_rows = rest + rows * _WIDTH * 4
    panels = max(1, (stop - first + _WIDTH - 1) // _WIDTH)
    most_steps = _steps_of(rows)
    most, panel_bytes = _GROUP if most_steps == _STEPS else _LOW_GROUP, (most_steps + 1) * _WIDTH * 4
    groups, blocks = (panels + most - 1) // most, (k + most_steps - 1) // most_steps
    width = (panels + groups - 1) // groups * _WIDTH
    for block in range(blocks):
        start, end = k * block // blocks, k * (block + 1) // blocks
        steps, is_first, is_last = end - start, int(block == 0), block == blocks - 1
        x, x_row = a + start * 4, a_row
        if a_row % 4096 == 0:
            _copy_of_rows(x, a_row, rows, steps, own_rows)
            x, x_row = own_rows, _COPY_ROW
        for column in range(first, stop, width):
            left = min(stop - column, width)
            place, target = b + start * b_row + column * 4, c + column * 4
            whole = left // _WIDTH * _WIDTH
            direct = whole if rows <= ROWS else 0
            for strip in range(0, direct, _WIDTH):
                source, out = place + strip * 4, target + strip * 4
                tile(rows, source, b_row, 64, x, x_row, steps, out, c_row, is_first, source + steps * b_row, b_row, 0)
            if whole < left:
                _copy_panel(place + whole * 4, b_row, steps, left - whole, work + (whole - direct) // _WIDTH * panel_bytes)
            if direct < left:
                following = b + end * b_row + first * 4 if column + left == stop else place + left * 4
                y, z, rest_left = place + direct * 4, target + direct * 4, left - direct
                if ROWS < rows <= 2 * ROWS:
                    _two_tiles(x, x_row, rows, steps, is_first, y, work, panel_bytes, z, c_row, rest_left, rest, following, b_row)
                else:
                    _group(x, x_row, rows, steps, is_first, y, work, panel_bytes, z, c_row, rest_left, rest, following, b_row)
            if is_last:
                if whole < left:
                    _copy_results(rest, _WIDTH * 4, rows, left - whole, target + whole * 4, c_row)
                _finish_part(record, batch, first_row, rows, column, left)


@inner
def _few_rows(a: int, a_row: int, b: int, b_row: int, c: int, c_row: int, rows: int, k: int, columns: int) -> int:
    """Product of few rows with columns, of which as many are read as fit; how many."""
    width = _wide_columns(rows) * 16
    wide, whole, blocks = columns // width * width, columns // _WIDTH * _WIDTH, (k + _STEPS - 1) // _STEPS
    for column in range(0, wide, width):
        for block in range(blocks):
            start = k * block // blocks
            steps, first = k * (block + 1) // blocks - start, int(start == 0)
            x, place, target = a + start * 4, b + start * b_row + column * 4, c + column * 4
            wide_tile(rows, place, b_row, 64, x, a_row, steps, target, c_row, first, place + _AHEAD * b_row, b_row, 0)
    for column in range(wide, whole, _WIDTH):
        for block in range(blocks):
            start = k * block // blocks
            steps, first = k * (block + 1) // blocks - start, int(start == 0)
            x, place, target = a + start * 4, b + start * b_row + column * 4, c + column * 4
            tile(rows, place, b_row, 64, x, a_row, steps, target, c_row, first, place + _AHEAD * b_row, b_row, 0)
    return whole


@inner
def _added_rows(a: int, a_row: int, b: int, b_row: int, c: int, c_row: int, rows: int, k: int, columns: int, sums: int) -> None:
    """Product of few rows with columns, as sums of B's rows: as many columns at a time as the sums stay near the core for."""
    count, blocks = _rows_added(rows), (k + _STEPS - 1) // _STEPS
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
def _transpose(a: int, a_row: int, rows: int, k: int, width: int, target: int, spare: int) -> None:
    """Rows as columns of a panel of some width, up to 16 of them."""
    for step in range(0, k, 16):
        transpose_rows(a + step * 4, a_row, rows, k - step, spare)
        for index in range(min(16, k - step)):
            store_f32(target + (step + index) * width * 4, load_f32(spare + index * 64))


@inner
def _width_of_group(left: int) -> int:
    """Columns of a panel for so many rows."""
    return 16 if left <= 16 else _WIDTH


@inner
def _transposed_rows(a: int, a_row: int, rows: int, k: int, panels: int, spare: int) -> None:
    """All rows as panels of columns, one behind the other."""
    for group in range(0, rows, _WIDTH):
        width = _width_of_group(rows - group)
        for start in range(group, min(group + width, rows), 16):
            target = panels + group * k * 4 + (start - group) * 4
            _transpose(a + start * a_row, a_row, min(16, rows - start), k, width, target, spare)


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
) -> None:
    """Sums of the products of some rows of B with all panels, for some steps."""
    tiles, is_copied = (count + ROWS - 1) // ROWS, b_row % 4096 == 0 and rows > _WIDTH
    for index in range(tiles):
        first = count * index // tiles
        height = count * (index + 1) // tiles - first
        x, x_row = b + first * b_row + start * 4, b_row
        if is_copied:
            _copy_of_rows(x, b_row, height, steps, own_rows)
            x, x_row = own_rows, _COPY_ROW
        for group in range(0, rows, _WIDTH):
            width, target = _width_of_group(rows - group), sums + first * sums_row + group * 4
            panel = panels + group * k * 4 + start * width * 4
            if width < _WIDTH:
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
    sums_row = (rows + _WIDTH - 1) // _WIDTH * _WIDTH * 4 + 64
    spare, own_rows, sums = work, work + 1024, work + 1024 + ROWS * _COPY_ROW
    panels, blocks = sums + _BLOCK * sums_row, (k + _ROW_STEPS - 1) // _ROW_STEPS
    _transposed_rows(a, a_row, rows, k, panels, spare)
    for column in range(first, stop, _BLOCK):
        count = min(_BLOCK, stop - column)
        for block in range(blocks):
            start = k * block // blocks
            steps = k * (block + 1) // blocks - start
            _block_of_rows(panels, rows, b + column * b_row, b_row, count, k, start, steps, sums, sums_row, own_rows)
        _write_transposed(sums, sums_row, count, rows, c + column * 4, c_row, spare)
        _finish_part(record, batch, first_row, rows, column, count)


@inner
def _bounds(record: int, job: int, unit: int) -> tuple[int, int, int, int, int]:
    """(matrix of the stack, first row, rows, first column, column behind the last) of a job."""
    m, n, row_parts, column_parts = argument(record, 5), argument(record, 6), argument(record, 20), argument(record, 21)
    units = (n + unit - 1) // unit
    column_part, rest = job % column_parts, job // column_parts
    row_part, batch = rest % row_parts, rest // row_parts
    first_row = m * row_part // row_parts
    rows = m * (row_part + 1) // row_parts - first_row
    first, stop = units * column_part // column_parts * unit, min(units * (column_part + 1) // column_parts * unit, n)
    return batch, first_row, rows, first, stop


@inner
def _jobs(record: int) -> int:
    count: int = argument(record, 15) * argument(record, 20) * argument(record, 21)
    return count


@task
def panels_of_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N): panels of it are copied, unless there are so few rows that it is read once."""
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, _WIDTH)
        for row in range(0, rows, at_once):
            _part_of_columns(record, batch, first_row + row, min(at_once, rows - row), first, stop, work)


@task
def rows_of_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N), A has up to ``FEW_ROWS`` rows: B is read once, row by row."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    work = argument(record, 4) + part * argument(record, 22)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, _WIDTH)
        a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
        b = argument(record, 1) + batch * argument(record, 12)
        c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
        done = first + _few_rows(a, a_row, b + first * 4, b_row, c + first * 4, c_row, rows, k, stop - first)
        if done < stop:
            _part_of_columns(record, batch, first_row, rows, done, stop, work)
        _finish_part(record, batch, first_row, rows, first, done - first)


@task
def panels_of_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K): A's rows become panels, B is read as it lies."""
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, 16)
        for row in range(0, rows, at_once):
            _part_of_rows(record, batch, first_row + row, min(at_once, rows - row), first, stop, work)


@task
def dots_of_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K), A has few rows: dot products, of so many rows of B at a time that they stay for all rows of A."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, 16)
        a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
        b = argument(record, 1) + batch * argument(record, 12)
        c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
        together = stop - first if rows <= FEW_ROWS else max(16, _DOTTED_BYTES // (k * 4) // 16 * 16)
        for start in range(first, stop, together):
            for row in range(0, rows, FEW_ROWS):
                x, y, count = a + row * a_row, c + row * c_row + start * 4, min(together, stop - start)
                all_dots(min(FEW_ROWS, rows - row), b + start * b_row, b_row, count, x, a_row, k, y, c_row)
        _finish_part(record, batch, first_row, rows, first, stop - first)


@task
def sums_of_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N), A has up to ``SUM_ROWS`` rows: sums of B's rows."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, _WIDTH)
        a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
        b = argument(record, 1) + batch * argument(record, 12) + first * 4
        c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row + first * 4
        _added_rows(a, a_row, b, b_row, c, c_row, rows, k, stop - first, argument(record, 4) + part * argument(record, 22))
        _finish_part(record, batch, first_row, rows, first, stop - first)


@inner
def _product_with_panel(a: int, a_row: int, rows: int, steps: int, panel: int, c: int, c_row: int, is_first: int) -> None:
    """Product of some rows and steps with one panel."""
    tiles = (rows + ROWS - 1) // ROWS
    for index in range(tiles):
        first, stop = rows * index // tiles, rows * (index + 1) // tiles
        x, y = a + first * a_row, c + first * c_row
        tile(stop - first, panel, _WIDTH * 4, 64, x, a_row, steps, y, c_row, is_first, panel, 0, 0)


@inner
def _part_of_halves(record: int, batch: int, first_row: int, rows: int, first: int, stop: int, work: int, is_rows: int) -> None:
    """Part of a product with float16, (N, K) if ``is_rows``: panels of it are made float32, one at a time."""
    k, a_row, b_row, c_row = argument(record, 7), argument(record, 8), argument(record, 9), argument(record, 10)
    a = argument(record, 0) + batch * argument(record, 11) + first_row * a_row
    b = argument(record, 1) + batch * argument(record, 12)
    c = argument(record, 2) + batch * argument(record, 13) + first_row * c_row
    panel, rest, blocks = work + SPARE_BYTES, work + SPARE_BYTES + _PANEL, (k + _STEPS - 1) // _STEPS
    for block in range(blocks):
        start = k * block // blocks
        steps, is_first = k * (block + 1) // blocks - start, int(block == 0)
        x, x_row = a + start * 4, a_row
        if a_row % 4096 == 0:
            x, x_row = rest + rows * _WIDTH * 4, _COPY_ROW
            _copy_of_rows(a + start * 4, a_row, rows, steps, x)
        for column in range(first, stop, _WIDTH):
            left = stop - column
            if is_rows:
                widen_rows(b + column * b_row + start * 2, b_row, steps, left, panel, _WIDTH, work)
            else:
                widen_columns(b + start * b_row + column * 2, b_row, steps, left, panel, _WIDTH)
            target, target_row = (c + column * 4, c_row) if left >= _WIDTH else (rest, _WIDTH * 4)
            _product_with_panel(x, x_row, rows, steps, panel, target, target_row, is_first)
            if left < _WIDTH and block == blocks - 1:
                _copy_results(rest, _WIDTH * 4, rows, left, c + column * 4, c_row)
    _finish_part(record, batch, first_row, rows, first, stop - first)


@inner
def _products_with_halves(record: int, part: int, parts: int, is_rows: int) -> None:
    work, at_once = argument(record, 4) + part * argument(record, 22), argument(record, 23)
    for job in range(_jobs(record) * part // parts, _jobs(record) * (part + 1) // parts):
        batch, first_row, rows, first, stop = _bounds(record, job, _WIDTH)
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
        _finish_part(record, batch, first_row, rows, first, columns)


@task
def halves_in_columns(record: int, part: int, parts: int) -> None:
    """B is (K, N) of float16: panels of it are widened, unless A is one row."""
    _products_with_halves(record, part, parts, 0)


@task
def halves_in_rows(record: int, part: int, parts: int) -> None:
    """B is (N, K) of float16: the same."""
    _products_with_halves(record, part, parts, 1)
