"""How the work of a task is cut so that threads can take it as they come to it, see ``simd.work_stealing``."""

from __future__ import annotations

__all__ = ["CLAIMS", "groups_for"]

CLAIMS = (0,) * 8
"""Words of a task's record that count what was taken."""
JOBS_PER_THREAD = 6
"""So many let a thread that others slow down leave a sixth of its work at a time."""


def groups_for(blocks: int, threads: int) -> int:
    """Groups that each of some blocks is cut into: 1 if there are enough of them, or nobody to share them with."""
    return 1 if threads == 1 else -(-JOBS_PER_THREAD * threads // blocks)
