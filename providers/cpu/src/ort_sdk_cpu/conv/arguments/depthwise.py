"""Arguments of depthwise convolutions of any sizes."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "Depthwise"]

MODULE = "conv.depthwise"


class Depthwise(TaskArguments, module=MODULE, tasks=("depthwise",)):
    """One filter per channel."""

    x: Pointer
    """float32 (samples, height, width, channels)."""
    filters: Pointer
    """float32 (taps_down, taps_right, channels)."""
    bias: Pointer
    """float32 (channels); 0 for none."""
    out: Pointer
    """float32 (samples, rows, columns, channels)."""
    samples: int
    channels: int
    height: int
    width: int
    taps_down: int
    taps_right: int
    rows: int
    columns: int
    step_down: int
    """Stride, as ``step_right``."""
    step_right: int
    dilation_down: int
    dilation_right: int
    top: int
    """Rows of zeros above X."""
    left: int
    """Columns of zeros to the left of it."""
    activation: int
    """``IDENTITY``, ``LEAKY_RELU`` or ``CLIP``."""
    alpha: float
    beta: float

    def extents(self) -> Extents:
        """What is read and written."""
        pixel = self.channels * FLOAT
        yield reads(self.x, self.samples * self.height * self.width * pixel)
        yield reads(self.filters, self.taps_down * self.taps_right * pixel)
        yield reads_if_given(self.bias, pixel)
        yield writes(self.out, self.samples * self.rows * self.columns * pixel)
