"""Arguments of MaxPool and AveragePool of NCHW and NCDHW."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR

from .windows import WindowAxis

__all__ = ["MODULE", "PoolNcdhw", "PoolNchw"]

MODULE = "pool.nchw"


class PoolNchw(TaskArguments, module=MODULE, tasks=("pool_nchw",)):
    """Pooling of NCHW, first down columns into lines of workspace, then along these; 1-D input has one row."""

    x: Pointer
    """float32 (planes, height, width)."""
    out: Pointer
    """float32 (planes, out height, out width)."""
    row_counts: Pointer
    """float32 (out height): rows that count in each window's mean; 0 for the maximum."""
    column_counts: Pointer
    """float32 (out width); 0 for the maximum."""
    workspace: Pointer
    """(threads, lines, line_bytes)."""
    planes: int
    """Samples times channels, times out depth for NCDHW: planes of the output."""
    h: WindowAxis
    w: WindowAxis
    line_bytes: int
    """Bytes of a line of workspace."""
    lines: int
    """Lines of each thread: output rows that it pools at a time."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._planes(self.planes * self.h.size * self.w.size, threads)

    def _planes(self, elements: int, threads: int) -> Extents:
        """The same for so many elements of x."""
        all_lines, line_bytes = threads * self.lines, self.line_bytes
        yield reads(self.x, elements * FLOAT)
        yield writes(self.out, self.planes * self.h.out_size * self.w.out_size * FLOAT)
        yield reads_if_given(self.row_counts, self.h.out_size * FLOAT)
        yield reads_if_given(self.column_counts, self.w.out_size * FLOAT)
        yield uses_workspace(self.workspace, max(all_lines * line_bytes, (all_lines - 1) * line_bytes + _line_bytes(self.w)))


def _line_bytes(axis: WindowAxis) -> int:
    """What is used of a line of workspace: windows of small strides are read as whole vectors."""
    extent = (axis.out_size - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1
    copied = axis.pad + max(0, min(axis.size, extent - axis.pad))
    if axis.stride > 2:
        return FLOAT * max(copied, extent)
    last = (axis.out_size - 1) // LANES * LANES * axis.stride + (axis.kernel - 1) * axis.dilation
    return max(FLOAT * copied, FLOAT * last + axis.stride * VECTOR)


class PoolNcdhw(PoolNchw, module=MODULE, tasks=("pool_ncdhw",)):
    """Pooling of NCDHW."""

    plane_counts: Pointer
    """float32 (out depth): planes that count in each window's mean; 0 for the maximum."""
    d: WindowAxis

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        volumes = -(-self.planes // self.d.out_size) if self.d.out_size else 0
        yield from self._planes(volumes * self.d.size * self.h.size * self.w.size, threads)
        yield reads_if_given(self.plane_counts, self.d.out_size * FLOAT)
