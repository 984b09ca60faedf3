"""GEMM of float32 whose B was packed into panels: C = f(alpha * A B + beta * D), and the packing.

A panel has NR columns of B, from the first step along K to the last. A is packed for each block of K, too: one group of rows for
each register tile. So a micro-kernel reads two streams from their beginnings to their ends.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.arguments.blocking import KC, NC_PANELS, TRANSPOSE_BYTES
from ort_sdk_cpu.gemm.arguments.sgemm_packed import GemmPacked, PackKN, PackNK
from ort_sdk_cpu.gemm.microkernels.sgemm import MR
from ort_sdk_cpu.gemm.microkernels.sgemm_packed import AHEAD_BYTES, STEP_BYTES, STEPS_AT_ONCE, packed_tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.memory import load_f32_masked, store_f32

from .epilogue import apply_epilogue
from .panels import NR, copy_results, transpose_panel
from .partition import job_bounds, job_range

__all__ = ["gemm_packed", "pack_kn", "pack_nk"]


@inline
def _pack_rows(a: int, lda: int, rows: int, steps: int, groups: int, workspace: int) -> None:
    """Some steps of rows of A, in the groups of their register tiles, one behind the other."""
    tiles = (rows + MR - 1) // MR
    for index in range(tiles):
        first = rows * index // tiles
        count = rows * (index + 1) // tiles - first
        transpose_panel(a + first * lda, lda, count, steps, count, groups + first * steps * 4, workspace)


@inline
def _multiply_panel(
    groups: int, rows: int, steps: int, panel: int, following: int, target: int, target_row: int, is_first: int
) -> None:
    """Groups of rows times some steps of a panel."""
    tiles = (rows + MR - 1) // MR
    # Each tile prefetches an equal part of the next panel: memory is busy all the time, and no tile waits for it.
    step = (AHEAD_BYTES // 64 + tiles - 1) // tiles * 64
    brought, most = steps // STEPS_AT_ONCE * step, steps * STEP_BYTES
    for index in range(tiles):
        first = rows * index // tiles
        count = rows * (index + 1) // tiles - first
        start = min(index * brought, most)
        group, place = groups + first * steps * 4, target + first * target_row
        packed_tile(count, panel, group, steps, place, target_row, is_first, following + start, step if start < most else 0)


@inline
def _addresses(args: GemmPacked, batch: int, first_row: int, first: int) -> tuple[int, int, int]:
    """Addresses of a block's rows of A and of C, and of its first panel."""
    a = args.a + batch * args.a_stride + first_row * args.lda
    c = args.c + batch * args.c_stride + first_row * args.ldc
    return a, c, args.b + batch * args.b_stride + first // NR * args.ldb


@inline
def _one_tile_of_rows(args: GemmPacked, batch: int, first_row: int, rows: int, first: int, stop: int, workspace: int) -> None:
    """Rows of one register tile: the loop over K is inside the loop over panels, each of which is read from end to end once."""
    k, last_results, groups = args.k, workspace + TRANSPOSE_BYTES, workspace + TRANSPOSE_BYTES + rows * NR * 4
    a, c, panels = _addresses(args, batch, first_row, first)
    blocks = (k + KC - 1) // KC
    if rows == 1:
        # One row is a group of one: packing it would be a copy.
        groups = a
    else:
        transpose_panel(a, args.lda, rows, k, rows, groups, workspace)
    for column in range(first, stop, NR):
        left, panel = stop - column, panels + (column - first) // NR * args.ldb
        target, target_row = (c + column * 4, args.ldc) if left >= NR else (last_results, NR * 4)
        # Blocks of K although nothing is kept for others: sums of fewer terms lose less to rounding.
        for block in range(blocks):
            start, end = k * block // blocks, k * (block + 1) // blocks
            group, place = groups + start * rows * 4, panel + start * STEP_BYTES
            _multiply_panel(group, rows, end - start, place, place + KC * STEP_BYTES, target, target_row, int(block == 0))
        if left < NR:
            copy_results(last_results, NR * 4, rows, left, c + column * 4, args.ldc)
    apply_epilogue(args, batch, first_row, rows, first, stop - first)


@inline
def _blocks_of_k(args: GemmPacked, batch: int, first_row: int, rows: int, first: int, stop: int, workspace: int) -> None:
    """More rows: the loop over K is outermost, so that the packed rows of one block (MC * KC) stay in the second cache."""
    k, last_results, groups = args.k, workspace + TRANSPOSE_BYTES, workspace + TRANSPOSE_BYTES + rows * NR * 4
    a, c, panels = _addresses(args, batch, first_row, first)
    blocks = (k + KC - 1) // KC
    for block in range(blocks):
        start, end, begun = k * block // blocks, k * (block + 1) // blocks, first
        _pack_rows(a + start * 4, args.lda, rows, end - start, groups, workspace)
        for column in range(first, stop, NR):
            left, panel = stop - column, panels + (column - first) // NR * args.ldb + start * STEP_BYTES
            following = panel + args.ldb if left > NR else panels + end * STEP_BYTES
            target, target_row = (c + column * 4, args.ldc) if left >= NR else (last_results, NR * 4)
            _multiply_panel(groups, rows, end - start, panel, following, target, target_row, int(block == 0))
            next_column = min(column + NR, stop)
            # The epilogue follows every NC columns, while their results are in a cache.
            if block == blocks - 1 and (next_column == stop or next_column - begun == NC_PANELS * NR):
                if left < NR:
                    copy_results(last_results, NR * 4, rows, left, c + column * 4, args.ldc)
                apply_epilogue(args, batch, first_row, rows, begun, next_column - begun)
                begun = next_column


@task
def gemm_packed(args: GemmPacked, thread: int, threads: int) -> None:
    """C = f(alpha * A B + beta * D); B is panels."""
    workspace, mc = args.workspace + thread * args.workspace_stride, args.mc
    first_job, last_job = job_range(args, thread, threads)
    for job in range(first_job, last_job):
        batch, first_row, rows, first, stop = job_bounds(args, job, NR)
        # Equal blocks: 513 rows are not 512 and one.
        blocks = (rows + mc - 1) // mc
        for block in range(blocks):
            row = rows * block // blocks
            count = rows * (block + 1) // blocks - row
            if count <= MR:
                _one_tile_of_rows(args, batch, first_row + row, count, first, stop, workspace)
            else:
                _blocks_of_k(args, batch, first_row + row, count, first, stop, workspace)


@task
def pack_kn(args: PackKN, thread: int, threads: int) -> None:
    """Panels of B (K, N), zeros behind the last column; threads share the panels."""
    k, n, ldb = args.k, args.n, args.ldb
    panels = (n + NR - 1) // NR
    for panel in range(panels * thread // threads, panels * (thread + 1) // threads):
        source, target = args.b + panel * NR * 4, args.panels + panel * args.panel_stride
        for step in range(k):
            for column in range(0, NR, 16):
                value = load_f32_masked(source + step * ldb + column * 4, n - panel * NR - column)
                store_f32(target + step * STEP_BYTES + column * 4, value)


@task
def pack_nk(args: PackNK, thread: int, threads: int) -> None:
    """Panels of the transpose of B (N, K); no zeros behind the last column. Threads share units of 16 columns."""
    workspace = args.workspace + thread * TRANSPOSE_BYTES
    units = (args.n + 15) // 16
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        source, column = args.b + unit * 16 * args.ldb, unit * 16
        target = args.panels + column // NR * args.panel_stride + column % NR * 4
        transpose_panel(source, args.ldb, min(16, args.n - column), args.k, NR, target, workspace)
