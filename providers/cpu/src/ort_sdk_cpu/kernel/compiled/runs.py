"""Elements moved in runs, each of which lies in one piece in both places."""

from __future__ import annotations

from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import load_f32_first, store_f32_first

__all__ = ["move_runs"]

_RUN_BYTES = 24


@task
def move_runs(record: int, _part: int, _parts: int) -> None:
    """(table, count): for each run its target, its source and how many words of 4 bytes it has, int64."""
    table = argument(record, 0)
    for run in range(table, table + argument(record, 1) * _RUN_BYTES, _RUN_BYTES):
        target, source, words = argument(run, 0), argument(run, 1), argument(run, 2)
        for word in range(0, words, 16):
            store_f32_first(target + word * 4, load_f32_first(source + word * 4, words - word), words - word)
