"""Arguments of ArgMax and ArgMin."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "ArgMax"]

MODULE = "reduction.arg_max"


class ArgMax(TaskArguments, module=MODULE, tasks=("arg_max",)):
    """Index of the first largest element times a factor along an axis; NaN is larger than any number."""

    x: Pointer
    """float32 (outer, count, inner)."""
    out: Pointer
    """int64 (outer, inner)."""
    outer: int
    count: int
    """Size of the axis; not 0."""
    inner: int
    factor: float
    """1 for ArgMax, -1 for ArgMin."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.outer * self.count * self.inner * FLOAT)
        yield writes(self.out, self.outer * self.inner * INT64)
