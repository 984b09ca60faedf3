"""Arguments of transposed convolutions into few channels."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, round_up

from .direct import workspace

__all__ = ["MODULE", "TransposedCol2im"]

MODULE = "conv.transposed_col2im"


class TransposedCol2im(TaskArguments, module=MODULE, tasks=("transposed_col2im",)):
    """A step of windows makes ``step_down`` rows and ``step_right`` columns of results; steps are cut into blocks and chunks."""

    x: Pointer
    """float32 (samples, channels, height, width), at the strides below."""
    weights: Pointer
    """float32 (channels, outputs, taps_down, taps_right)."""
    bias: Pointer
    """float32 (outputs); 0 for none."""
    out: Pointer
    """float32 (samples, outputs, rows, columns)."""
    work: Pointer
    """For each thread: a panel of 32 pixels with channels in whole vectors, 16 vectors, the rows of windows that are kept, and
    whole vectors of steps for each column of a step."""
    samples: int
    channels: int
    outputs: int
    height: int
    width: int
    taps_down: int
    taps_right: int
    step_down: int
    """Stride, as ``step_right``."""
    step_right: int
    top: int
    """Rows that are left out at the begin."""
    left: int
    """Columns that are left out there."""
    rows: int
    columns: int
    x_sample: int
    """Bytes from sample to sample of X, ..."""
    x_channel: int
    """... from channel to channel, ..."""
    x_row: int
    """... from row to row, ..."""
    x_pixel: int
    """... and from pixel to pixel."""
    pitch: int
    """Bytes of one tap's products of a row, whole vectors."""
    kept: int
    """Rows of X whose products are kept."""
    blocks: int
    """Of rows of steps."""
    chunks: int
    """Of columns of steps."""
    chunk: int
    """Columns of a chunk."""
    work_bytes: int
    above: int
    """First row of X that results of a step are made of, counted from the step."""
    before: int
    """The same of columns."""
    behind: int
    """And the last column."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        taps = self.outputs * self.taps_down * self.taps_right
        panel = round_up(self.channels) * 2 * VECTOR
        phases = self.step_right * round_up(min(self.chunk, -(-self.columns // self.step_right))) * FLOAT
        sizes = (self.samples, self.channels, self.height, self.width)
        yield accesses(self.x, sizes, (self.x_sample, self.x_channel, self.x_row, self.x_pixel), FLOAT)
        yield reads(self.weights, self.channels * taps * FLOAT)
        yield reads_if_given(self.bias, self.outputs * FLOAT)
        yield writes(self.out, self.samples * self.outputs * self.rows * self.columns * FLOAT)
        used = panel + LANES * VECTOR + self.kept * taps * self.pitch + phases
        yield workspace(self.work, threads, self.work_bytes, used)
