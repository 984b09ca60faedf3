"""Jobs of a GEMM: each is a part of the rows and columns of one matrix of the batch. Threads take equal shares of them."""

from __future__ import annotations

from ort_sdk_cpu.gemm.arguments.sgemm import Gemm
from ort_sdk_cpu.jit.numba_frontend import inline

__all__ = ["job_bounds", "job_range"]


@inline
def job_range(args: Gemm, thread: int, threads: int) -> tuple[int, int]:
    """A thread's first job, and the one behind its last."""
    jobs = args.batch * args.m_parts * args.n_parts
    return jobs * thread // threads, jobs * (thread + 1) // threads


@inline
def job_bounds(args: Gemm, job: int, unit: int) -> tuple[int, int, int, int, int]:
    """(matrix of the batch, first row, rows, first column, column behind the last) of a job; columns by whole units."""
    m, n, units = args.m, args.n, (args.n + unit - 1) // unit
    # Parts of the columns follow each other: a thread that has several jobs keeps its rows of A in its caches.
    n_part, others = job % args.n_parts, job // args.n_parts
    m_part, batch = others % args.m_parts, others // args.m_parts
    first_row = m * m_part // args.m_parts
    rows = m * (m_part + 1) // args.m_parts - first_row
    first, stop = units * n_part // args.n_parts * unit, min(units * (n_part + 1) // args.n_parts * unit, n)
    return batch, first_row, rows, first, stop
