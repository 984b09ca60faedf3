"""Arguments of the sampling of DeformConv."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "SampleWindows"]

MODULE = "conv.deformable"


class SampleWindows(TaskArguments, module=MODULE, tasks=("sample_windows",)):
    """Bilinear samples of windows as rows."""

    x: Pointer
    """float32 (samples, height, width, channels)."""
    offsets: Pointer
    """float32 (samples, groups, taps, 2, rows, columns): down and to the right."""
    factors: Pointer
    """float32 (samples, groups, taps, rows, columns); 0 for none."""
    out: Pointer
    """float32 (samples * rows * columns, taps, channels)."""
    samples: int
    channels: int
    height: int
    width: int
    rows: int
    columns: int
    taps_down: int
    taps_right: int
    step_down: int
    """Stride, as ``step_right``."""
    step_right: int
    dilation_down: int
    dilation_right: int
    top: int
    """Rows of zeros above X."""
    left: int
    """Columns of zeros to the left of it."""
    groups: int
    """Of channels that share offsets."""

    def extents(self) -> Extents:
        """What is read and written."""
        taps = self.samples * self.rows * self.columns * self.taps_down * self.taps_right
        yield reads(self.x, self.samples * self.height * self.width * self.channels * FLOAT)
        yield reads(self.offsets, self.groups * 2 * taps * FLOAT)
        yield reads_if_given(self.factors, self.groups * taps * FLOAT)
        yield writes(self.out, taps * self.channels * FLOAT)
