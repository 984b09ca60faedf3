"""Jobs of a task that its parts take as they come to them: a part whose processor is shared with others gets fewer.

Each part has a range of the jobs of its own, which it finds in its cache if it had them before; who is done takes from others.
Eight words of the task's record, all 0 before and afterwards, count what was taken.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner

from .memory import write_i64
from .vector_types import operation, pointer

__all__ = ["leave_jobs", "next_job"]

_WORD = 8
_RANGES = 7
"""Most ranges: of a larger team, several parts share one."""


@operation(types.intp, types.intp)
def _counted(builder: Any, address: Any) -> Any:
    """What a word was before it became one more, for one part at a time."""
    word = ir.IntType(64)
    return builder.atomic_rmw("add", pointer(builder, address, word), ir.Constant(word, 1), "monotonic")


@inner
def next_job(claims: int, jobs: int, part: int, parts: int, tried: int) -> tuple[int, int]:
    """A job that nobody has taken, or -1, and how many ranges have none left.

    Args:
        claims: address of the words.
        jobs: how many there are.
        part: which part asks.
        parts: of the task.
        tried: what was returned before, 0 at first.
    """
    ranges = min(parts, _RANGES)
    while tried < ranges:
        whose = (part * ranges // parts + tried) % ranges
        job = jobs * whose // ranges + _counted(claims + whose * _WORD)
        if job < jobs * (whose + 1) // ranges:
            return job, tried
        tried += 1
    return -1, tried


@inner
def leave_jobs(claims: int, parts: int) -> None:
    """Tell that a part takes no more; the last one to do so makes the words 0 again."""
    if _counted(claims + _RANGES * _WORD) == parts - 1:
        for word in range(_RANGES + 1):
            write_i64(claims + word * _WORD, 0)
