"""Synchronization of the threads of a task: barriers, arrival counters, and jobs with work stealing."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.numba_frontend import inline

from .memory import write_i64
from .vector_types import call, operation, pointer

__all__ = ["barrier", "count_arrival", "finish_jobs", "next_job"]

_WORD = 8
_RANGES = 7
"""Ranges of jobs at most: of a larger team, several threads share one. With the counter of finished threads, 64 bytes."""


@operation(types.none)
def barrier(builder: Any) -> None:
    """Wait until all threads of the task have arrived. Only for tasks that run in OpenMP's parallel regions."""
    call(builder, "GOMP_barrier", ir.VoidType())


@operation(types.intp, types.intp)
def count_arrival(builder: Any, address: Any) -> Any:
    """Increment an int64 atomically; returns the value before. The last thread to do so sees what the others wrote before."""
    return _fetch_increment(builder, address, "acq_rel")


@operation(types.intp, types.intp)
def _count_job(builder: Any, address: Any) -> Any:
    """Increment an int64 atomically; returns the value before. Orders no other memory access."""
    return _fetch_increment(builder, address, "monotonic")


def _fetch_increment(builder: Any, address: Any, ordering: str) -> Any:
    word = ir.IntType(64)
    return builder.atomic_rmw("add", pointer(builder, address, word), ir.Constant(word, 1), ordering)


# Each thread starts with a range of jobs of its own, whose data its cache may still hold from an earlier task, and then steals
# from the ranges of others. So a thread that is preempted does fewer jobs; with static scheduling all others would wait for it.


@inline
def next_job(counters: int, jobs: int, thread: int, threads: int, tried: int) -> tuple[int, int]:
    """Take a job.

    Args:
        counters: address of 8 words of int64, all 0 before the task.
        jobs: number of jobs.
        thread: index of the calling thread.
        threads: number of threads of the task.
        tried: number of empty ranges as returned by the call before; 0 at first.

    Returns:
        Index of the job, or -1 if none is left, and the number of ranges that this thread found empty.
    """
    ranges = min(threads, _RANGES)
    while tried < ranges:
        victim = (thread * ranges // threads + tried) % ranges
        job = jobs * victim // ranges + _count_job(counters + victim * _WORD)
        if job < jobs * (victim + 1) // ranges:
            return job, tried
        tried += 1
    return -1, tried


@inline
def finish_jobs(counters: int, threads: int) -> None:
    """Declare that the calling thread takes no more jobs; the last thread to do so sets the counters to 0 again.

    Args:
        counters: as for ``next_job``.
        threads: number of threads of the task.
    """
    if _count_job(counters + _RANGES * _WORD) == threads - 1:
        for word in range(_RANGES + 1):
            write_i64(counters + word * _WORD, 0)
