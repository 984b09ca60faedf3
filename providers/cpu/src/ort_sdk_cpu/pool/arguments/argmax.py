"""Arguments of MaxPool with its output Indices."""

from __future__ import annotations

import math

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

from .windows import WindowAxis

__all__ = ["MODULE", "MaxPoolWithIndices"]

MODULE = "pool.argmax"


class MaxPoolWithIndices(TaskArguments, module=MODULE, tasks=("max_pool_with_indices",)):
    """MaxPool of NCHW with Indices; 1-D input has one row."""

    x: Pointer
    """float32 (planes, height, width)."""
    out: Pointer
    """float32 (planes, out height, out width)."""
    indices: Pointer
    """int64, as ``out``: where the maximum is in x as a whole."""
    planes: int
    """Samples times channels."""
    h: WindowAxis
    w: WindowAxis
    row_step: int
    """What a row counts in an index: the width, or 1 in column-major order."""
    column_step: int
    """What a column counts in an index."""

    def extents(self) -> Extents:
        """What is read and written."""
        found = math.prod((self.planes, self.h.out_size, self.w.out_size))
        yield reads(self.x, self.planes * self.h.size * self.w.size * FLOAT)
        yield writes(self.out, found * FLOAT)
        yield writes(self.indices, found * INT64)
