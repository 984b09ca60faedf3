"""Arguments of TopK."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "TopK"]

MODULE = "reduction.top_k"


class TopK(TaskArguments, module=MODULE, tasks=("top_k",)):
    """The k largest elements along an axis, times a sign, in descending order, and their indices."""

    x: Pointer
    """float32 (outer, size, inner)."""
    values: Pointer
    """float32 (outer, k, inner); 0 for none."""
    indices: Pointer
    """int64 (outer, k, inner); 0 for none."""
    workspace: Pointer
    """``workspace_bytes`` for each thread: a heap of k int64, and a row of ``size`` float32 if ``inner`` is not 1."""
    outer: int
    size: int
    inner: int
    k: int
    workspace_bytes: int
    sign: float
    """1, or -1 for the smallest."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        found = self.outer * self.k * self.inner
        yield reads(self.x, self.outer * self.size * self.inner * FLOAT)
        yield writes(self.values, found * FLOAT, may_be_none=True)
        yield writes(self.indices, found * INT64, may_be_none=True)
        used = self.k * INT64 + (self.size * FLOAT if self.inner > 1 else 0)
        yield uses_workspace(self.workspace, (threads - 1) * self.workspace_bytes + used)
