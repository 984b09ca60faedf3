"""Gather of rows of a matrix."""

from __future__ import annotations

from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.movement.arguments.gather_rows import GatherRows
from ort_sdk_cpu.simd.memory import load_f32_masked, read_i64, store_f32_masked

__all__ = ["gather_rows"]


@task
def gather_rows(args: GatherRows, thread: int, threads: int) -> None:
    """Gather along the first axis of a matrix; each thread has a range of indices."""
    width = args.width
    for row in range(args.rows * thread // threads, args.rows * (thread + 1) // threads):
        index = read_i64(args.indices + row * 8)
        if index < 0:
            index += args.table_rows
        # An index is content, which launches cannot check: each is looked at before it is used.
        if 0 <= index < args.table_rows:
            source, out = args.table + index * width * 4, args.out + row * width * 4
            for element in range(0, width, 16):
                store_f32_masked(out + element * 4, load_f32_masked(source + element * 4, width - element), width - element)
        else:
            args.failed = 1
