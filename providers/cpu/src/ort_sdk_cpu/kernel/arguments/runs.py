"""Arguments of copies of a list of contiguous runs."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads
from ort_sdk_cpu.jit.extents.sizes import INT64

__all__ = ["MODULE", "RUN_WORDS", "CopyRuns"]

MODULE = "kernel.runs"
RUN_WORDS = 3


class CopyRuns(TaskArguments, module=MODULE, tasks=("copy_runs",)):
    """Runs of elements, each contiguous in its target and in its source."""

    runs: Pointer
    """int64 (count, 3): address of the target, address of the source, and elements of 4 bytes.

    Whoever makes the table looks at the arrays that it points into.
    """
    count: int

    def extents(self) -> Extents:
        """What is read of the table."""
        yield reads(self.runs, self.count * RUN_WORDS * INT64)
