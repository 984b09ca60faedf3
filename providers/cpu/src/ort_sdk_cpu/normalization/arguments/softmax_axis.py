"""Arguments of Softmax along an axis that is not the last."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["SoftmaxAxis"]

MODULE = "normalization.softmax_axis"


class SoftmaxAxis(TaskArguments, module=MODULE, tasks=("softmax_axis",)):
    """Softmax along an axis of ``size`` elements; the others are collapsed to (outer, middle, inner)."""

    x: Pointer
    """float32; contiguous along ``inner``."""
    out: Pointer
    """float32; contiguous along ``inner``."""
    size: int
    x_stride: int
    """Bytes from one element of the softmax to the next, like all strides here."""
    out_stride: int
    outer: int
    middle: int
    inner: int
    x_outer_stride: int
    x_middle_stride: int
    out_outer_stride: int
    out_middle_stride: int

    def extents(self) -> Extents:
        """What is read and written."""
        sizes = (self.size, self.outer, self.middle, self.inner)
        x_strides = (self.x_stride, self.x_outer_stride, self.x_middle_stride, FLOAT)
        out_strides = (self.out_stride, self.out_outer_stride, self.out_middle_stride, FLOAT)
        yield accesses(self.x, sizes, x_strides, FLOAT)
        yield accesses(self.out, sizes, out_strides, FLOAT, is_written=True)
