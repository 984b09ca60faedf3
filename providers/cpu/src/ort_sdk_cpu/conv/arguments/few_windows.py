"""Arguments of convolutions with few windows."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["MODULE", "FewWindows"]

MODULE = "conv.few_windows"


class FewWindows(TaskArguments, module=MODULE, tasks=("few_windows",)):
    """One or two spatial axes, NCHW."""

    x: Pointer
    """float32 (samples, channels, height, width)."""
    weights: Pointer
    """float32 (outputs, channels / groups, taps_down, taps_right)."""
    bias: Pointer
    """float32 (outputs); 0 for none."""
    added: Pointer
    """float32, as ``out``: added before the activation; 0 for none."""
    out: Pointer
    """float32 (samples, outputs, rows, columns)."""
    work: Pointer
    """float32 (threads, rows * columns, channels / groups * taps): windows of a group."""
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
    """``IDENTITY``, ``LEAKY_RELU``, ``CLIP``, ``SIGMOID``, ``TANH`` or ``HARD_SIGMOID``."""
    alpha: float
    samples: int
    channels: int
    outputs: int
    groups: int
    beta: float

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        positions = self.rows * self.columns
        depth = self.channels // self.groups * self.taps_down * self.taps_right
        written = self.samples * self.outputs * positions * FLOAT
        yield reads(self.x, self.samples * self.channels * self.height * self.width * FLOAT)
        yield reads(self.weights, self.outputs * depth * FLOAT)
        yield reads_if_given(self.bias, self.outputs * FLOAT)
        yield reads_if_given(self.added, written)
        yield writes(self.out, written)
        yield uses_workspace(self.work, threads * positions * depth * FLOAT)
