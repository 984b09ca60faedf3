"""Arguments of Gather of rows by indices that only a run knows."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["GatherRows"]

MODULE = "movement.gather_rows"


class GatherRows(TaskArguments, module=MODULE, tasks=("gather_rows",)):
    """Gather along the first axis of a matrix."""

    failed: int
    """0; the task sets 1 where an index is out of range, and reads and writes nothing there."""
    table: Pointer
    """float32 (table rows, width)."""
    indices: Pointer
    """int64 (rows), negative ones from the end."""
    out: Pointer
    """float32 (rows, width)."""
    table_rows: int
    rows: int
    width: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.table, self.table_rows * self.width * FLOAT)
        yield reads(self.indices, self.rows * INT64)
        yield writes(self.out, self.rows * self.width * FLOAT)
