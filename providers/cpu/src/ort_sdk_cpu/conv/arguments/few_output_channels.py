"""Arguments of convolutions into few output channels."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .direct import Epilogue, Operands, results

__all__ = ["MODULE", "FewOutputChannels"]

MODULE = "conv.few_output_channels"


class FewOutputChannels(Operands, module=MODULE, tasks=("few_output_channels",)):
    """Weights are float32 (outputs, taps_down, taps_right, channels). There is no workspace."""

    samples: int
    height: int
    width: int
    channels: int
    outputs: int
    rows: int
    """Of the output, as ``columns``."""
    columns: int
    taps_down: int
    taps_right: int
    step_down: int
    """Stride, as ``step_right``."""
    step_right: int
    top: int
    """Rows of zeros above X."""
    left: int
    """Columns of zeros to the left of it."""
    work_bytes: int
    """0."""
    epilogue: Epilogue

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.samples * self.height * self.width * self.channels * FLOAT)
        yield reads(self.weights, self.outputs * self.taps_down * self.taps_right * self.channels * FLOAT)
        pixels = self.samples * self.rows * self.columns
        yield from results(self.bias, self.added, self.out, self.epilogue.last, pixels, self.outputs)
