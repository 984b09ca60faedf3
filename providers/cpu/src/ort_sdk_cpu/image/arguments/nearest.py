"""Arguments of Resize that takes the nearest pixel."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes

__all__ = ["MODULE", "Nearest"]

MODULE = "image.nearest"
_INT32 = 4


class Nearest(TaskArguments, module=MODULE, tasks=("nearest_nchw_8", "nearest_nchw_32", "nearest_nhwc")):
    """Copies of pixels."""

    x: Pointer
    """(images, height, width, pixel_bytes)."""
    out: Pointer
    """(images, out height, out width, pixel_bytes)."""
    rows: Pointer
    """int32 (out height): row of x that each row is."""
    columns: Pointer
    """int32 (out width)."""
    images: int
    """Samples; times channels for NCHW."""
    height: int
    width: int
    out_height: int
    out_width: int
    pixel_bytes: int
    """Of an element for NCHW, of all channels for NHWC."""
    repeats: int
    """How often each column of x follows; 0 if not equally often."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.images * self.height * self.width * self.pixel_bytes)
        yield writes(self.out, self.images * self.out_height * self.out_width * self.pixel_bytes)
        yield reads(self.rows, self.out_height * _INT32)
        yield reads(self.columns, self.out_width * _INT32)
