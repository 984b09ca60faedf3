"""Arguments of CDist."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, VECTOR

__all__ = ["MODULE", "Distances"]

MODULE = "ml.distances"


class Distances(TaskArguments, module=MODULE, tasks=("cdist",)):
    """Distances between the rows of two matrices."""

    a: Pointer
    """float32 (rows, features)."""
    b: Pointer
    """float32 (others, features)."""
    out: Pointer
    """float32 (rows, others)."""
    workspace: Pointer
    """A vector of 64 bytes for each feature and thread."""
    rows: int
    others: int
    features: int
    has_root: int
    """Whether the square roots are taken."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield reads(self.a, self.rows * self.features * FLOAT)
        yield reads(self.b, self.others * self.features * FLOAT)
        yield writes(self.out, self.rows * self.others * FLOAT)
        yield uses_workspace(self.workspace, threads * self.features * VECTOR)
