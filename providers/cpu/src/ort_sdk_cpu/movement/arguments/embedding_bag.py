"""Arguments of EmbeddingBag."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "EmbeddingBag"]

MODULE = "movement.embedding_bag"


class EmbeddingBag(TaskArguments, module=MODULE, tasks=("embedding_bag",)):
    """The sum, mean or maximum of the rows of a table that indices[start:end] name."""

    failed: int
    """1 where the bag is empty or an index is out of range; nothing is written then."""
    table: Pointer
    """float32 (rows, columns)."""
    indices: Pointer
    """int64 (count), negative ones from the end."""
    start: Pointer
    """int64 (1), as Slice has it."""
    end: Pointer
    """int64 (1), as Slice has it."""
    out: Pointer
    """float32 (columns)."""
    rows: int
    count: int
    columns: int
    mode: int
    """0: sum; 1: mean; 2: maximum."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.table, self.rows * self.columns * FLOAT)
        yield reads(self.indices, self.count * INT64)
        yield reads(self.start, INT64)
        yield reads(self.end, INT64)
        yield writes(self.out, self.columns * FLOAT)
