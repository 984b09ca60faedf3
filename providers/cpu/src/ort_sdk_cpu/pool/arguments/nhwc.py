"""Arguments of MaxPool with channels last."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .windows import WindowAxis

__all__ = ["MODULE", "MaxPoolNhwc"]

MODULE = "pool.nhwc"


class MaxPoolNhwc(TaskArguments, module=MODULE, tasks=("max_pool_nhwc",)):
    """MaxPool of NDHWC; 1-D and 2-D input has axes of size 1."""

    x: Pointer
    """float32 (samples, depth, height, width, channels)."""
    out: Pointer
    """float32 (samples, out depth, out height, out width, channels)."""
    samples: int
    channels: int
    d: WindowAxis
    h: WindowAxis
    w: WindowAxis

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.samples * self.channels * FLOAT
        yield reads(self.x, nbytes * self.d.size * self.h.size * self.w.size)
        yield writes(self.out, nbytes * self.d.out_size * self.h.out_size * self.w.out_size)
