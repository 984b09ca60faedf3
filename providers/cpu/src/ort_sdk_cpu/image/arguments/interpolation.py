"""Arguments of linear and cubic Resize."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, round_up

__all__ = ["MODULE", "AxisTaps", "Interpolation", "InterpolationOfBytes"]

MODULE = "image.interpolation"
_INT32 = 4


class AxisTaps(TaskArguments):
    """What is summed for each output position along an axis."""

    indices: Pointer
    """int32 (positions, count): of the input; (count, positions) for columns of NCHW, whose vectors are along columns."""
    weights: Pointer
    """float32, as indices."""
    count: int
    """Taps per position."""


class Interpolation(TaskArguments, module=MODULE, tasks=("interpolate_nhwc", "interpolate_nchw")):
    """Separable interpolation of images: each thread makes a row of the input's width, and of that one of the output."""

    x: Pointer
    """float32 (images, height, width, channels)."""
    out: Pointer
    """float32 (images, out height, out width, channels)."""
    workspace: Pointer
    """Of each thread a row of the input and a vector, in float32."""
    images: int
    """Samples; times channels for NCHW."""
    height: int
    width: int
    out_height: int
    out_width: int
    channels: int
    """Elements of a pixel; 1 for NCHW."""
    rows: AxisTaps
    columns: AxisTaps

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(FLOAT, threads)

    def _extents(self, itemsize: int, threads: int) -> Extents:
        yield reads(self.x, self.images * self.height * self.width * self.channels * itemsize)
        yield writes(self.out, self.images * self.out_height * self.out_width * self.channels * itemsize)
        yield uses_workspace(self.workspace, threads * round_up(self.width * self.channels + LANES) * FLOAT)
        for taps, size in ((self.rows, self.out_height), (self.columns, self.out_width)):
            yield reads(taps.indices, size * taps.count * _INT32)
            yield reads(taps.weights, size * taps.count * FLOAT)


class InterpolationOfBytes(Interpolation, module=MODULE, tasks=("interpolate_nhwc_bytes",)):
    """The same of uint8 or int8."""

    sign: int
    """128 for int8, 0 for uint8: what makes elements unsigned by exclusive or."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._extents(1, threads)
