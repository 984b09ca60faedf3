"""Arguments of GridSample and RoiAlign."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = ["MODULE", "GridSample", "RoiAlign"]

MODULE = "image.sampling"
_GRID_WORK = 33 << 10
"""Bytes: a block's table, and a tile."""
_CORNERS = 4
"""Numbers of a region."""


class GridSample(TaskArguments, module=MODULE, tasks=("grid_sample",)):
    """GridSample of 2-D images."""

    x: Pointer
    """float32 (samples, channels, height, width), or NHWC."""
    grid: Pointer
    """float32 (samples, points, 2): x and y, -1 to 1."""
    out: Pointer
    """float32 (samples, channels, points)."""
    workspace: Pointer
    """33 KiB per thread."""
    samples: int
    channels: int
    height: int
    width: int
    points: int
    """Of each sample."""
    mode: int
    """0: nearest, 1: linear, 2: cubic."""
    padding: int
    """0: zeros, 1: border, 2: reflection."""
    aligns_corners: int
    is_channels_last: int

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.samples * self.channels * self.height * self.width * FLOAT)
        yield reads(self.grid, self.samples * self.points * 2 * FLOAT)
        yield writes(self.out, self.samples * self.channels * self.points * FLOAT)
        yield uses_workspace(self.workspace, threads * _GRID_WORK)


class RoiAlign(TaskArguments, module=MODULE, tasks=("roi_align",)):
    """RoiAlign."""

    x: Pointer
    """float32 (samples, channels, height, width), or NHWC."""
    regions: Pointer
    """float32 (count, 4): left, top, width and height in pixels."""
    out: Pointer
    """float32 (count, channels, out height, out width)."""
    workspace: Pointer
    """(threads, workspace_bytes)."""
    batch_indices: Pointer
    """int64 (count): sample that each region is of; the caller has checked them."""
    channels: int
    height: int
    width: int
    count: int
    """Regions."""
    out_height: int
    """Bins of a region."""
    out_width: int
    sampling_ratio: int
    """Samples of a bin along an axis; 0: one per pixel."""
    workspace_bytes: int
    """Of each thread."""
    is_channels_last: int
    is_average: int
    """Whether a bin is the average of its samples, and not the largest."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written; how many samples x has is known where indices are checked."""
        yield reads(self.x, self.channels * self.height * self.width * FLOAT)
        yield reads(self.regions, self.count * _CORNERS * FLOAT)
        yield writes(self.out, self.count * self.channels * self.out_height * self.out_width * FLOAT)
        yield uses_workspace(self.workspace, threads * self.workspace_bytes)
        yield reads(self.batch_indices, self.count * INT64)
