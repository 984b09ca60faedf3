"""The loops around GEMMs of MatMulNBits, the same for all kinds of panels: in which order panels are unpacked and used.

A *strip* is 32 columns of a weight [N, k_blocks, bytes], or those of 64 bytes in a row of a weight [K, N]. Of a strip and some
blocks (a *chunk*), a panel is made: pairs of vectors of 16 columns; then tiles of the result are computed from it. Columns that
share a byte are in different vectors.

From the outside: threads share parts of K and N; groups of strips; rows of activations, MC at a time; chunks along K; the strips
of a group. So a panel is unpacked once for MC rows, while sums of a group stay in the workspace.

Chunks and the activations' spans end together. For the workspace of a job see ``arguments/gemm.py``.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import WORKSPACE_START, MatMulNBits
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import add
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, prefetch, store_f32_masked
from ort_sdk_cpu.simd.transpose import interleave

__all__ = ["prefetch_lines", "run_jobs"]


@inline
def prefetch_lines(place: int, stride: int, width: int, first: int, count: int) -> None:
    """Prefetch lines of 64 bytes of a part of a matrix: ``count`` from the ``first`` on, ``width`` to a row."""
    # Lines are counted through: a division for each would take longer than the prefetch.
    row, line = place + first // width * stride, first % width
    for _ in range(count):
        prefetch(row + line * 64)
        line += 1
        if line == width:
            line = 0
            row += stride


@inline
def _write_results(
    args: MatMulNBits, sums: int, pairs: int, rows: int, planes: int, bias: int, out: int, column: int, workspace: int
) -> None:
    """Rows of pairs of vectors, with the columns that share a byte brought together, into the result."""
    n = args.n
    for row in range(rows):
        for start in range(0, 2 * pairs, planes):
            place = interleave(sums + (row * 2 * pairs + start) * 64, workspace, workspace + 1024, planes, planes)
            for plane in range(planes):
                first = column + (start + plane) * 16
                if first < n:
                    value = load_f32(place + plane * 64)
                    if bias:
                        value = add(value, load_f32_masked(bias + first * 4, n - first))
                    store_f32_masked(out + (row * n + first) * 4, value, n - first)


@inline
def _column(args: MatMulNBits, strip: int, pairs: int) -> int:
    """First column of a strip; the last one of a weight [K, N] ends at the weight's end."""
    # Overlapping strips compute some columns twice, and need no masks.
    return min(strip * 32 * pairs, args.n - 32 * pairs) if pairs > 1 else strip * 32


@inline
def _group(
    args: MatMulNBits,
    start: int,
    stop: int,
    first_block: int,
    last_block: int,
    k_part: int,
    m_first: int,
    pairs: int,
    planes: int,
    make: Any,
    use: Any,
    workspace: int,
) -> None:
    """Results of some strips and rows of activations."""
    m, n, chunk, mc = args.m, args.n, args.chunk, args.mc
    rows, strip_bytes = min(m - m_first, mc), mc * pairs * 128
    sums = workspace + WORKSPACE_START
    s_panel = sums + args.group * strip_bytes
    z_panel = s_panel + pairs * chunk * 128
    panel = z_panel + pairs * chunk * 128
    # Chunks outside, strips inside: with several strips memory is read in the order of a KN weight's rows.
    for first in range(first_block, last_block, chunk):
        count = min(chunk, last_block - first)
        for strip in range(start, stop):
            column = _column(args, strip, pairs)
            make(args, column, first, count, s_panel, z_panel, panel, workspace, strip - start, stop - start)
            target = sums + (strip - start) * strip_bytes
            use(args, m_first, rows, first, count, s_panel, z_panel, panel, target, 1 if first == first_block else 0)
    out, bias = args.out, args.bias
    # The bias is added once, by the first part of K.
    if k_part:
        out, bias = args.partials + (k_part - 1) * m * n * 4, 0
    for strip in range(start, stop):
        place = sums + (strip - start) * strip_bytes
        column = _column(args, strip, pairs)
        _write_results(args, place, pairs, rows, planes, bias, out + m_first * n * 4, column, workspace)


@inline
def _job(args: MatMulNBits, job: int, pairs: int, planes: int, make: Any, use: Any) -> None:
    n, block, group = args.n, args.block_size, args.group
    k_parts, n_parts = args.k_parts, args.n_parts
    width, blocks = 32 * pairs, (args.k + block - 1) // block
    strips, k_part, n_part = (n + width - 1) // width, job // n_parts, job % n_parts
    chunks = (blocks + args.chunk - 1) // args.chunk
    first = chunks * k_part // k_parts * args.chunk
    last = min(chunks * (k_part + 1) // k_parts * args.chunk, blocks)
    workspace = args.workspace + job * args.workspace_stride
    last_strip = strips * (n_part + 1) // n_parts
    for start in range(strips * n_part // n_parts, last_strip, group):
        stop = min(start + group, last_strip)
        for m_first in range(0, args.m, args.mc):
            _group(args, start, stop, first, last, k_part, m_first, pairs, planes, make, use, workspace)


@inline
def run_jobs(args: MatMulNBits, thread: int, threads: int, pairs: int, planes: int, make: Any, use: Any) -> None:
    """A thread's jobs of a task.

    Args:
        args, thread, threads: the task's.
        pairs: of vectors to a strip; 1 is for a weight [N, ...].
        planes: vectors whose columns take turns.
        make: ``make(args, column, first, count, s_panel, z_panel, panel, workspace, strip, strips)`` makes a panel of a strip,
            whose number among those that take turns is given, and ``count`` blocks.
        use: ``use(args, m_first, rows, first, count, s_panel, z_panel, panel, target, begins)`` adds its products with some
            rows of activations to the sums at ``target``, or writes them there.
    """
    jobs = args.k_parts * args.n_parts
    for job in range(jobs * thread // threads, jobs * (thread + 1) // threads):
        _job(args, job, pairs, planes, make, use)
