"""GEMM of float32 that reads B in place: C = f(alpha * A B + beta * D), for a batch of matrices, by BLIS's blocks.

The blocks are those of BLIS (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008; Van Zee and van de
Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015). The loops, from the outside: threads share parts
of M and N; rows of A, MC at a time; steps along K, KC at a time; columns, NC at a time; register tiles of MR rows; panels of NR
columns. B is packed as its first register tile reads it. A is not: KC steps of a row follow each other in memory anyway.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.arguments.blocking import (
    A_COPY_ROW_BYTES,
    KC,
    NC_PANELS,
    NC_TRANSPOSED,
    PANEL_BYTES,
    TRANSPOSE_BYTES,
    WIDEN_BYTES,
)
from ort_sdk_cpu.gemm.arguments.sgemm import Gemm, GemmKN, GemmKNFloat16, GemmNK, GemmNKFloat16, GemvNK, SplitK
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, UNPACKED_ROWS, direct_packing_tile, direct_tile, narrow_tile, tile
from ort_sdk_cpu.gemm.microkernels.sgemv import FEW_ROWS, add_row, add_rows, add_sums, all_dots, rows_added
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.fp16 import gemv_f16, gemv_f16_transposed, pack_panel_f16, pack_panel_f16_transposed
from ort_sdk_cpu.simd.memory import LAST_BYTE, load_f32, prefetch_l2, store_f32, store_f32_masked
from ort_sdk_cpu.simd.shuffles import transpose_rows
from ort_sdk_cpu.simd.synchronization import barrier

from .epilogue import apply_epilogue
from .panels import NR, copy_panel, copy_results, copy_rows, multiply_panels, transpose_panel
from .partition import job_bounds, job_range
from .split_k import add_partial_sums, partial_sums

__all__ = ["gemm_kn", "gemm_kn_f16", "gemm_nk", "gemm_nk_f16", "gemv_kn", "gemv_nk", "split_k"]

_rows_added = inline(rows_added)
# A first cache of 32 KB and 8 ways has 64 sets of lines: at 2 KB, rows share two of them.
_ALIASING_BYTES = 2048
"""Rows of A so far apart, or a multiple of that, are copied: a register tile's would evict each other from the first cache."""
# As above, of rows that a tile reads once: not before all of them share one set does a copy pay.
_PAGE_BYTES = 4096
_GEMV_COLUMNS = 4096
"""Columns whose sums are made at a time: 16 KB for each row, which stay near the core."""
_L2_BYTES = 1 << 16
"""Rows of B (N, K) that stay in the caches near the core while row after row of A is multiplied with them."""


@inline
def _multiply_in_place(
    b: int,
    ldb: int,
    columns: int,
    left: int,
    x: int,
    x_row: int,
    rows: int,
    steps: int,
    c: int,
    ldc: int,
    is_first: int,
    following: int,
    panel: int,
) -> None:
    """Up to ``UNPACKED_ROWS`` rows times columns that are read once; ``following`` is what comes ``left`` columns on.

    More than ``MR`` rows are two register tiles, of which the second reads what the first one keeps in a panel.
    """
    # The second tile finds in the first cache what the first one brought from memory.
    others, rest, rest_c = rows - MR, x + MR * x_row, MR * ldc
    for column in range(0, columns, NR):
        # Two panels ahead: into the second cache, as the first one has no room for so many lines that come from memory.
        soon, place, target = column + 2 * NR, b + column * 4, c + column * 4
        source = (b if soon < left else following) + soon * 4 + LAST_BYTE
        if others > 0:
            direct_packing_tile(place, ldb, panel, x, x_row, steps, target, ldc, is_first, source)
            tile(others, panel, NR * 4, 64, rest, x_row, steps, target + rest_c, ldc, is_first, panel, 0, 0)
        else:
            direct_tile(rows, place, ldb, x, x_row, steps, target, ldc, is_first, source)


@inline
def _block_kn(args: GemmKN, batch: int, first_row: int, rows: int, first: int, stop: int, workspace: int) -> None:
    """Up to MC rows times some columns of B (K, N)."""
    k, lda, ldb, ldc = args.k, args.lda, args.ldb, args.ldc
    a = args.a + batch * args.a_stride + first_row * lda
    b = args.b + batch * args.b_stride
    c = args.c + batch * args.c_stride + first_row * ldc
    # Few rows use a panel once or twice: writing and reading it again would take longer than it saves.
    is_in_place = rows <= UNPACKED_ROWS
    last_results = workspace + (1 if is_in_place else NC_PANELS) * PANEL_BYTES
    own_rows = last_results + rows * NR * 4
    panels = max(1, (stop - first + NR - 1) // NR)
    groups, blocks = (panels + NC_PANELS - 1) // NC_PANELS, (k + KC - 1) // KC
    # Groups of panels, and blocks of K, are equally large: no last one of a few steps, which costs as many stores as a whole one.
    width = (panels + groups - 1) // groups * NR
    for block in range(blocks):
        start, end = k * block // blocks, k * (block + 1) // blocks
        steps, is_first, is_last = end - start, int(block == 0), block == blocks - 1
        x, x_row = a + start * 4, lda
        # One copy serves all panels of the block.
        if lda % _ALIASING_BYTES == 0:
            copy_rows(x, lda, rows, steps, own_rows)
            x, x_row = own_rows, A_COPY_ROW_BYTES
        for column in range(first, stop, width):
            left = min(stop - column, width)
            place, target = b + start * ldb + column * 4, c + column * 4
            whole = left // NR * NR
            in_place = whole if is_in_place else 0
            if in_place:
                following = b + end * ldb + first * 4 - (stop - column) * 4
                _multiply_in_place(
                    place, ldb, in_place, stop - column, x, x_row, rows, steps, target, ldc, is_first, following, workspace
                )
            if whole < left:
                copy_panel(place + whole * 4, ldb, steps, left - whole, workspace + (whole - in_place) // NR * PANEL_BYTES)
            if in_place < left:
                following = LAST_BYTE + (b + end * ldb + first * 4 if column + left == stop else place + left * 4)
                y, z, others = place + in_place * 4, target + in_place * 4, left - in_place
                multiply_panels(x, x_row, rows, steps, is_first, y, workspace, z, ldc, others, last_results, following, ldb)
            if is_last:
                if whole < left:
                    copy_results(last_results, NR * 4, rows, left - whole, target + whole * 4, ldc)
                apply_epilogue(args, batch, first_row, rows, column, left)


@inline
def _sum_scaled_rows(a: int, lda: int, b: int, ldb: int, c: int, ldc: int, rows: int, k: int, columns: int, sums: int) -> None:
    """Few rows of A times columns of B, as sums of B's rows, each scaled by a number of A: BLAS's GEMV by AXPY."""
    count, blocks = _rows_added(rows), (k + KC - 1) // KC
    most = _GEMV_COLUMNS // rows // 16 * 16
    sums_row = most * 4 + 64
    for place in range(sums, sums + rows * sums_row, 64):
        store_f32(place, zero_f32())
    for first in range(0, columns, most):
        width, place = min(most, columns - first), b + first * 4
        # Sums of KC terms are added up: fewer numbers are added one after the other, and less is lost to rounding.
        for block in range(blocks):
            start, stop = k * block // blocks, k * (block + 1) // blocks
            whole = start + (stop - start) // count * count
            for step in range(start, whole, count):
                add_rows(rows, place + step * ldb, ldb, a + step * 4, lda, width, sums, sums_row)
            for step in range(whole, stop):
                add_row(rows, place + step * ldb, ldb, a + step * 4, lda, width, sums, sums_row)
            add_sums(sums, sums_row, rows, width, c + first * 4, ldc, int(start == 0))


@inline
def _panel_width(rows: int) -> int:
    """Columns of a panel of so many rows of A: of few, half of a whole panel would be zeros."""
    return 16 if rows <= 16 else NR


@inline
def _pack_a_transposed(a: int, lda: int, rows: int, k: int, panels: int, workspace: int) -> None:
    """All rows of A as columns of panels, one panel behind the other."""
    for group in range(0, rows, NR):
        width = _panel_width(rows - group)
        for start in range(group, min(group + width, rows), 16):
            target = panels + group * k * 4 + (start - group) * 4
            transpose_panel(a + start * lda, lda, min(16, rows - start), k, width, target, workspace)


@inline
def _prefetch_rows(place: int, row_bytes: int, rows: int, steps: int) -> None:
    """Prefetch some steps of rows, each of which is read number by number, too slowly for a processor to foresee."""
    for row in range(rows):
        for step in range(0, steps, 16):
            prefetch_l2(place + row * row_bytes + step * 4 + LAST_BYTE)


@inline
def _multiply_transposed(
    panels: int,
    rows: int,
    b: int,
    ldb: int,
    count: int,
    k: int,
    start: int,
    steps: int,
    results: int,
    results_row: int,
    own_rows: int,
    following: int,
) -> None:
    """Some steps of ``count`` rows of B times all panels of A: transposed results."""
    tiles, is_copied = (count + MR - 1) // MR, ldb % _PAGE_BYTES == 0 and rows > NR
    for index in range(tiles):
        first = count * index // tiles
        height = count * (index + 1) // tiles - first
        x, x_row = b + first * ldb + start * 4, ldb
        _prefetch_rows(x + height * ldb if index + 1 < tiles else following, ldb, height, steps)
        # Copying is worth it where a tile's rows are read for several panels of A.
        if is_copied:
            copy_rows(x, ldb, height, steps, own_rows)
            x, x_row = own_rows, A_COPY_ROW_BYTES
        for group in range(0, rows, NR):
            width, target = _panel_width(rows - group), results + first * results_row + group * 4
            panel = panels + group * k * 4 + start * width * 4
            if width < NR:
                narrow_tile(height, panel, 64, 64, x, x_row, steps, target, results_row, int(start == 0), panel, 0, 0)
            else:
                tile(height, panel, width * 4, 64, x, x_row, steps, target, results_row, int(start == 0), panel, 0, 0)


@inline
def _write_transposed(results: int, results_row: int, count: int, rows: int, c: int, ldc: int, workspace: int) -> None:
    for first in range(0, count, 16):
        for row in range(0, rows, 16):
            transpose_rows(results + first * results_row + row * 4, results_row, min(16, count - first), 16, workspace)
            for index in range(min(16, rows - row)):
                store_f32_masked(c + (row + index) * ldc + first * 4, load_f32(workspace + index * 64), count - first)


@inline
def _block_nk(args: GemmNK, batch: int, first_row: int, rows: int, first: int, stop: int, workspace: int) -> None:
    """Up to MC rows times some columns of B (N, K), as the transpose: C' = B A'.

    B's rows then take the place of A's in register tiles, and A's transpose that of B: what is packed is the smaller operand.
    """
    k, lda, ldb, ldc = args.k, args.lda, args.ldb, args.ldc
    a = args.a + batch * args.a_stride + first_row * lda
    b = args.b + batch * args.b_stride
    c = args.c + batch * args.c_stride + first_row * ldc
    # One line more than the rows need, so that rows of results do not meet in the same sets of a cache.
    results_row = (rows + NR - 1) // NR * NR * 4 + 64
    own_rows = workspace + TRANSPOSE_BYTES
    results = own_rows + MR * A_COPY_ROW_BYTES
    panels, blocks = results + NC_TRANSPOSED * results_row, (k + KC - 1) // KC
    _pack_a_transposed(a, lda, rows, k, panels, workspace)
    # Transposed results of so many columns stay in a second cache until they are written.
    for column in range(first, stop, NC_TRANSPOSED):
        count = min(NC_TRANSPOSED, stop - column)
        for block in range(blocks):
            start = k * block // blocks
            steps = k * (block + 1) // blocks - start
            place = b + column * ldb
            following = place + count * ldb if block + 1 == blocks else place + (start + steps) * 4
            _multiply_transposed(panels, rows, place, ldb, count, k, start, steps, results, results_row, own_rows, following)
        _write_transposed(results, results_row, count, rows, c + column * 4, ldc, workspace)
        apply_epilogue(args, batch, first_row, rows, column, count)


@task
def gemm_kn(args: GemmKN, thread: int, threads: int) -> None:
    """B is (K, N): panels of it are packed, unless there are so few rows that it is read once."""
    workspace, mc = args.workspace + thread * args.workspace_stride, args.mc
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, NR)
        for row in range(0, rows, mc):
            _block_kn(args, batch, first_row + row, min(mc, rows - row), first, stop, workspace)


@task
def gemm_nk(args: GemmNK, thread: int, threads: int) -> None:
    """B is (N, K): A's rows are packed transposed, B is read in place."""
    workspace, mc = args.workspace + thread * args.workspace_stride, args.mc
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, 16)
        for row in range(0, rows, mc):
            _block_nk(args, batch, first_row + row, min(mc, rows - row), first, stop, workspace)


@task
def gemv_nk(args: GemvNK, thread: int, threads: int) -> None:
    """B is (N, K), A has few rows: dot products, of so many rows of B at a time that they stay for all rows of A."""
    k, lda, ldb, ldc = args.k, args.lda, args.ldb, args.ldc
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, 16)
        a = args.a + batch * args.a_stride + first_row * lda
        b = args.b + batch * args.b_stride
        c = args.c + batch * args.c_stride + first_row * ldc
        # Up to FEW_ROWS rows of A meet a row of B in registers: then B is read once, and need not stay.
        together = stop - first if rows <= FEW_ROWS else max(16, _L2_BYTES // (k * 4) // 16 * 16)
        for start in range(first, stop, together):
            for row in range(0, rows, FEW_ROWS):
                x, y, count = a + row * lda, c + row * ldc + start * 4, min(together, stop - start)
                all_dots(min(FEW_ROWS, rows - row), b + start * ldb, ldb, count, x, lda, k, y, ldc)
        apply_epilogue(args, batch, first_row, rows, first, stop - first)


@task
def gemv_kn(args: GemmKN, thread: int, threads: int) -> None:
    """B is (K, N), A has up to ``SUM_ROWS`` rows: sums of B's rows, each scaled by a number of A."""
    workspace = args.workspace + thread * args.workspace_stride
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, NR)
        a = args.a + batch * args.a_stride + first_row * args.lda
        b = args.b + batch * args.b_stride + first * 4
        c = args.c + batch * args.c_stride + first_row * args.ldc + first * 4
        _sum_scaled_rows(a, args.lda, b, args.ldb, c, args.ldc, rows, args.k, stop - first, workspace)
        apply_epilogue(args, batch, first_row, rows, first, stop - first)


@task
def split_k(args: SplitK, thread: int, threads: int) -> None:
    """B is (K, N), one matrix; A has up to ``MR`` rows: each thread multiplies with some of B's rows. For teams."""
    k = args.k
    partial_sums(args, k * thread // threads, k * (thread + 1) // threads, args.workspace + thread * args.workspace_stride)
    barrier()
    vectors = (args.n + 15) // 16
    first, stop = vectors * thread // threads * 16, min(vectors * (thread + 1) // threads * 16, args.n)
    add_partial_sums(args, first, stop, threads)
    apply_epilogue(args, 0, 0, args.m, first, stop - first)


@inline
def _multiply_panel(a: int, lda: int, rows: int, steps: int, panel: int, c: int, ldc: int, is_first: int) -> None:
    """Some rows and steps of A times one panel."""
    tiles = (rows + MR - 1) // MR
    for index in range(tiles):
        first, stop = rows * index // tiles, rows * (index + 1) // tiles
        x, y = a + first * lda, c + first * ldc
        tile(stop - first, panel, NR * 4, 64, x, lda, steps, y, ldc, is_first, panel, 0, 0)


@inline
def _block_f16(
    args: Gemm, batch: int, first_row: int, rows: int, first: int, stop: int, workspace: int, is_transposed: int
) -> None:
    """Up to MC rows times some columns of B of float16, (N, K) if transposed: panels are widened to float32, one at a time."""
    k, lda, ldb, ldc = args.k, args.lda, args.ldb, args.ldc
    a = args.a + batch * args.a_stride + first_row * lda
    b = args.b + batch * args.b_stride
    c = args.c + batch * args.c_stride + first_row * ldc
    panel, blocks = workspace + WIDEN_BYTES, (k + KC - 1) // KC
    last_results = panel + PANEL_BYTES
    for block in range(blocks):
        start = k * block // blocks
        steps, is_first = k * (block + 1) // blocks - start, int(block == 0)
        x, x_row = a + start * 4, lda
        if lda % _PAGE_BYTES == 0:
            x, x_row = last_results + rows * NR * 4, A_COPY_ROW_BYTES
            copy_rows(a + start * 4, lda, rows, steps, x)
        for column in range(first, stop, NR):
            left = stop - column
            if is_transposed:
                pack_panel_f16_transposed(b + column * ldb + start * 2, ldb, steps, left, panel, NR, workspace)
            else:
                pack_panel_f16(b + start * ldb + column * 2, ldb, steps, left, panel, NR)
            target, target_row = (c + column * 4, ldc) if left >= NR else (last_results, NR * 4)
            _multiply_panel(x, x_row, rows, steps, panel, target, target_row, is_first)
            if left < NR and block == blocks - 1:
                copy_results(last_results, NR * 4, rows, left, c + column * 4, ldc)
    apply_epilogue(args, batch, first_row, rows, first, stop - first)


@inline
def _gemm_f16(args: Gemm, thread: int, threads: int, is_transposed: int) -> None:
    workspace, mc = args.workspace + thread * args.workspace_stride, args.mc
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, NR)
        if rows > 1:
            for row in range(0, rows, mc):
                _block_f16(args, batch, first_row + row, min(mc, rows - row), first, stop, workspace, is_transposed)
            continue
        # One row is bound by reading B, which is widened in registers.
        ldb, columns = args.ldb, stop - first
        a = args.a + batch * args.a_stride + first_row * args.lda
        b = args.b + batch * args.b_stride + first * (ldb if is_transposed else 2)
        c = args.c + batch * args.c_stride + first_row * args.ldc + first * 4
        if is_transposed:
            gemv_f16_transposed(a, b, ldb, args.k, columns * rows, c)
        else:
            gemv_f16(a, b, ldb, args.k, columns * rows, c)
        apply_epilogue(args, batch, first_row, rows, first, columns)


@task
def gemm_kn_f16(args: GemmKNFloat16, thread: int, threads: int) -> None:
    """B is (K, N) of float16: panels of it are widened, unless A is one row."""
    _gemm_f16(args, thread, threads, 0)


@task
def gemm_nk_f16(args: GemmNKFloat16, thread: int, threads: int) -> None:
    """B is (N, K) of float16: the same."""
    _gemm_f16(args, thread, threads, 1)
