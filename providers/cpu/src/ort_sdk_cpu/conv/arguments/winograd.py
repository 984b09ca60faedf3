"""Arguments of Winograd's convolution and of the transform of its weights."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, require_at_most, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, panel_bytes, panel_count, round_up

from .direct import Epilogue, JobCounters, Operands, results, workspace

__all__ = ["MODULE", "Winograd", "WinogradWeights"]

MODULE = "conv.winograd"
_POINTS, _TAPS = 16, 9


class Winograd(Operands, module=MODULE, tasks=("winograd",)):
    """3 x 3 with stride 1; weights are of ``winograd_weights``."""

    samples: int
    height: int
    width: int
    channels: int
    outputs: int
    rows: int
    """Of the output, as ``columns``."""
    columns: int
    top: int
    """Rows of zeros above X."""
    left: int
    """Columns of zeros to the left of it."""
    tile_rows: int
    """Tiles of 2 x 2 outputs above each other."""
    tile_columns: int
    """And side by side."""
    blocks: int
    """Of tiles, into which the work is cut, ..."""
    channel_parts: int
    """... and of panels of output channels. A job is a block in such a part."""
    work_bytes: int
    epilogue: Epilogue
    jobs: JobCounters = JobCounters()

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        require_at_most("rows of tiles", self.tile_rows, (self.rows + 1) // 2)
        require_at_most("columns of tiles", self.tile_columns, (self.columns + 1) // 2)
        tiles = -(-self.samples * self.tile_rows * self.tile_columns // self.blocks)
        transformed = _POINTS * (tiles * (round_up(self.channels) * FLOAT + VECTOR) + VECTOR)
        products = tiles * (_POINTS * panel_bytes() + VECTOR)
        yield reads(self.x, self.samples * self.height * self.width * self.channels * FLOAT)
        yield reads(self.weights, panel_count(self.outputs) * _POINTS * self.channels * panel_bytes())
        yield workspace(self.work, threads, self.work_bytes, transformed + products)
        pixels = self.samples * self.rows * self.columns
        yield from results(self.bias, self.added, self.out, self.epilogue.last, pixels, self.outputs)


class WinogradWeights(TaskArguments, module=MODULE, tasks=("winograd_weights",)):
    """Transform of weights."""

    weights: Pointer
    """float32 (outputs, channels, 3, 3), at any address."""
    out: Pointer
    """float32 (panels of outputs, 16 points, channels, output channels of a panel)."""
    work: Pointer
    """9 KiB for each thread: the taps of 16 channels of 16 outputs."""
    outputs: int
    channels: int

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield reads(self.weights, self.outputs * self.channels * _TAPS * FLOAT)
        yield writes(self.out, panel_count(self.outputs) * _POINTS * self.channels * panel_bytes())
        yield uses_workspace(self.work, threads * _TAPS * LANES * VECTOR)
