"""Arguments of ranks among the splits of tree ensembles."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "SplitRanks"]

MODULE = "ml.ranks"
_DOUBLE = 8


class SplitRanks(TaskArguments, module=MODULE, tasks=("split_ranks",)):
    """The rank of each feature of a row among the splits that trees compare it with."""

    x: Pointer
    """float64 (rows, features), or more features."""
    out: Pointer
    """float32 (rows, features)."""
    starts: Pointer
    """int64 (features + 1): where the splits of each feature begin, and the end of the last."""
    splits: Pointer
    """float64 (split_count): those of each feature in ascending order, each once."""
    rows: int
    x_stride: int
    """Bytes from a row to the next."""
    features: int
    split_count: int

    def extents(self) -> Extents:
        """What is read and written."""
        yield accesses(self.x, (self.rows,), (self.x_stride,), self.features * _DOUBLE)
        yield writes(self.out, self.rows * self.features * FLOAT)
        yield reads(self.starts, (self.features + 1) * INT64)
        yield reads(self.splits, self.split_count * _DOUBLE)
