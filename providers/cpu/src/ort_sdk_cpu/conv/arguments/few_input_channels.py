"""Arguments of convolutions of few input channels."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads, require_at_most
from ort_sdk_cpu.jit.extents.sizes import FLOAT, round_up

from .direct import Epilogue, JobCounters, Operands, results, workspace

__all__ = ["MODULE", "FewInputChannels"]

MODULE = "conv.few_input_channels"
_PIXELS = 8


class FewInputChannels(Operands, module=MODULE, tasks=("few_input_channels",)):
    """X is NCHW; weights are float32 (channels, taps_down, taps_right, output channels in whole vectors)."""

    samples: int
    height: int
    width: int
    channels: int
    outputs: int
    rows: int
    """Of the output, as ``columns``, of which there are 8 or more."""
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
    """The lines under a row of windows, in whole vectors."""
    epilogue: Epilogue
    jobs: JobCounters = JobCounters()
    """A job is a row of the output."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        require_at_most("columns less than eight of an output", _PIXELS - self.columns, 0)
        length = round_up((self.columns - 1) * self.step_right + self.taps_right)
        yield reads(self.x, self.samples * self.height * self.width * self.channels * FLOAT)
        yield reads(self.weights, self.channels * self.taps_down * self.taps_right * round_up(self.outputs) * FLOAT)
        yield workspace(self.work, threads, self.work_bytes, self.channels * self.taps_down * length * FLOAT)
        pixels = self.samples * self.rows * self.columns
        yield from results(self.bias, self.added, self.out, self.epilogue.last, pixels, self.outputs)
