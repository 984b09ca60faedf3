"""Split-K: each thread multiplies A's few rows with some rows of B, from end to end; partial sums are added when all are there.

Few rows are bound by memory, and a processor brings memory that is read in order faster than parts of rows, which are what
threads read that share the columns. GPUs' split-K GEMMs do the same to have enough work for all cores.
"""

from __future__ import annotations

from ort_sdk_cpu.gemm.arguments.blocking import SPLIT_K_KC
from ort_sdk_cpu.gemm.arguments.sgemm import SplitK
from ort_sdk_cpu.gemm.microkernels.sgemm import strided_tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import add, zero_f32
from ort_sdk_cpu.simd.memory import load_f32, store_f32, store_f32_masked

from .panels import NR, copy_panel

__all__ = ["add_partial_sums", "partial_sums"]


@inline
def _sums_row(columns: int) -> int:
    """Bytes from row to row of a thread's sums: whole tiles."""
    # One more line, so that rows do not meet in the same sets of the cache.
    return (columns + NR - 1) // NR * NR * 4 + 64


@inline
def partial_sums(args: SplitK, start: int, stop: int, sums: int) -> None:
    """Product with B's rows from ``start`` to ``stop``; of none, zeros."""
    rows, columns, lda, ldb = args.m, args.n, args.lda, args.ldb
    sums_row, whole = _sums_row(columns), columns // NR * NR
    panel = sums + rows * sums_row
    if start == stop:
        for place in range(sums, panel, 64):
            store_f32(place, zero_f32())
    for step in range(start, stop, SPLIT_K_KC):
        steps, is_first = min(SPLIT_K_KC, stop - step), int(step == start)
        x, b = args.a + step * 4, args.b + step * ldb
        for column in range(0, whole, NR):
            strided_tile(rows, b + column * 4, ldb, x, lda, 4, steps, sums + column * 4, sums_row, is_first)
        if whole < columns:
            copy_panel(b + whole * 4, ldb, steps, columns - whole, panel)
            strided_tile(rows, panel, NR * 4, x, lda, 4, steps, sums + whole * 4, sums_row, is_first)


@inline
def add_partial_sums(args: SplitK, first: int, stop: int, threads: int) -> None:
    """Write some columns of the result: the sums of all threads, which begin their workspaces, together."""
    sums, sums_row, stride = args.workspace, _sums_row(args.n), args.workspace_stride
    for row in range(args.m):
        source, target = sums + row * sums_row, args.c + row * args.ldc
        for column in range(first, stop, 16):
            # Always in the order of threads: results do not depend on which comes first.
            value = load_f32(source + column * 4)
            for thread in range(1, threads):
                value = add(value, load_f32(source + thread * stride + column * 4))
            store_f32_masked(target + column * 4, value, stop - column)
