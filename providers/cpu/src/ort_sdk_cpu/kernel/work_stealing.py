"""How the blocks of a task are divided into jobs that threads steal from each other, see ``simd.synchronization``."""

from __future__ import annotations

__all__ = ["jobs_per_block"]

JOBS_PER_THREAD = 6
"""Jobs per thread at least: a thread that is preempted holds up a sixth of its work, the others steal the rest."""


def jobs_per_block(blocks: int, threads: int) -> int:
    """Number of jobs that each block is divided into: 1 if there are enough blocks, or one thread.

    Args:
        blocks: at least one.
        threads: of the task.
    """
    return 1 if threads == 1 else -(-JOBS_PER_THREAD * threads // blocks)
