"""Arguments of depthwise convolutions of volumes."""

from __future__ import annotations

from ort_sdk_cpu.jit.extents.declaration import Extents, reads, require_at_most
from ort_sdk_cpu.jit.extents.sizes import FLOAT

from .direct import results, workspace
from .separable import SeparableSizes, check_lines, weights_of, workspace_of

__all__ = ["MODULE", "Depthwise3d"]

MODULE = "conv.depthwise_3d"


class Depthwise3d(SeparableSizes, module=MODULE, tasks=("depthwise_3d",)):
    """Of volumes (samples, depth, height, width, channels): no convolution is before the filters or behind them."""

    depth: int
    """Planes of X."""
    out_depth: int
    """Planes of the output."""
    taps: int
    """Planes of taps."""
    step: int
    """Stride along the depth."""
    dilation: int
    """The same."""
    front: int
    """Planes of zeros before X."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        used = workspace_of(self, 1 + self.taps * ((self.taps_down - 1) * self.dilation_down + 1))
        check_lines(self.taps * self.taps_down)
        require_at_most("channels of filters", self.filtered, self.outputs)
        yield reads(self.x, self.samples * self.depth * self.height * self.width * self.channels * FLOAT)
        yield from weights_of(self, self.taps * self.taps_down * self.taps_right)
        yield workspace(self.work, threads, self.work_bytes, used.nbytes)
        pixels = self.samples * self.out_depth * self.rows * self.columns
        yield from results(self.bias, self.added, self.out, self.epilogue.last, pixels, self.outputs)
