"""Copies of a list of runs, each of which is contiguous in its target and in its source."""

from __future__ import annotations

from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.kernel.arguments.runs import CopyRuns
from ort_sdk_cpu.simd.memory import load_f32_masked, read_i64, store_f32_masked

__all__ = ["copy_runs"]

_RUN_BYTES = 24


@task
def copy_runs(args: CopyRuns, _thread: int, _threads: int) -> None:
    """Runs of elements of 4 bytes, in the order of the table; one thread."""
    # One thread keeps their order, which counts where runs write the same elements (ScatterND with repeated indices).
    for run in range(args.runs, args.runs + args.count * _RUN_BYTES, _RUN_BYTES):
        target, source, count = read_i64(run), read_i64(run + 8), read_i64(run + 16)
        # Masked vectors in place of memcpy: most runs are shorter than a call of it is worth, and any type is moved as its bits.
        for element in range(0, count, 16):
            offset, left = element * 4, count - element
            store_f32_masked(target + offset, load_f32_masked(source + offset, left), left)
