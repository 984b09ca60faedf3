"""Arguments of 1x1 convolutions."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT, panel_bytes, panel_count, register_tile

from .direct import Epilogue, JobCounters, Operands, results, workspace

__all__ = ["MODULE", "Pointwise"]

MODULE = "conv.pointwise"


class Pointwise(Operands, module=MODULE, tasks=("pointwise",)):
    """A GEMM of pixels and panels of weights: float32 (panels of outputs, channels, output channels of a panel)."""

    pixels: int
    """Of all samples."""
    channels: int
    blocks: int
    """Of pixels, into which the work is cut, ..."""
    groups: int
    """... and of panels. A job is a block with a group."""
    outputs: int
    jobs: JobCounters
    work_bytes: int
    epilogue: Epilogue

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        used = (1 + panel_count(self.outputs) + register_tile()[0]) * panel_bytes()
        yield reads(self.x, self.pixels * self.channels * FLOAT)
        yield reads(self.weights, panel_count(self.outputs) * self.channels * panel_bytes())
        yield workspace(self.work, threads, self.work_bytes, used)
        yield from results(self.bias, self.added, self.out, self.epilogue.last, self.pixels, self.outputs)
