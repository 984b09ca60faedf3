"""GridSample and RoiAlign by compiled tasks: a table of pixels and weights serves all channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.kernel.eager_tasks import EagerCall
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last
from ort_sdk_cpu.kernel.layouts.strided_copy import strided_copy
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.platform import libraries

from .arguments.sampling import MODULE, GridSample, RoiAlign

__all__: list[str] = []

MODES = {"nearest": 0, "linear": 1, "bilinear": 1, "cubic": 2, "bicubic": 2}
PADDINGS = ("zeros", "border", "reflection")
TABLE_BYTES = 1 << 15
"""Of a block of points."""
ENTRY_BYTES, LANES = 128, 16
MOST_TABLE_BYTES = 1 << 24
TILE_BYTES = 1 << 10
LEAST_CHANNELS = 16
"""That make it worth to read those of a pixel at once."""
LEAST_READS = 2
"""How often an element is read at least, where it pays to put channels last."""
LARGEST_AREA = 1 << 31
"""Positions have 32 bits."""
WORK = 4
"""Elements of a few instructions each that a sample of a channel takes as long as."""


def _are_usual(info: KernelInfo, *, inputs: int) -> bool:
    floats = all(info.input_element_type(index) is TensorElementType.FLOAT for index in range(inputs))
    return floats and libraries.compiled_kernels().is_usable


@direct_call("GridSample")
def grid_sample(info: KernelInfo) -> EagerCall | None:
    """(N, C, h, w) samples of images (N, C, H, W) at positions (N, h, w, 2)."""
    mode, padding = info.attribute("mode", "linear"), info.attribute("padding_mode", "zeros")
    if not _are_usual(info, inputs=2) or mode not in MODES or padding not in PADDINGS:
        return None
    settings = (MODES[mode], PADDINGS.index(padding), int(info.attribute("align_corners", 0)))
    workspace, results = workspace_of(info), ResultAllocator()

    def call(x: HostArray, grid: HostArray) -> Any:
        if x.ndim != 4 or grid.ndim != 4 or grid.shape[0] != x.shape[0] or grid.shape[-1] != 2 or not are_floats((x, grid)):
            return NotImplemented
        samples, channels, height, width = x.shape
        points = math.prod(grid.shape[1:-1])
        work = samples * points * channels * WORK
        if not x.size or height * width >= LARGEST_AREA or not is_worth_a_task(work, MODULE, "grid_sample"):
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        x, grid = _in_layout(x, points * samples * channels * max(4 * settings[0] ** 2, 1), workspace), np.ascontiguousarray(grid)
        out, threads = results.empty((samples, channels, *grid.shape[1:-1])), threads_for(work)
        table = workspace.buffer(MODULE, threads * (TABLE_BYTES + TILE_BYTES))
        options = (*settings, int(is_channels_last(x)))
        arguments = GridSample(x, grid, out, table, samples, channels, height, width, points, *options)
        task_function(MODULE, "grid_sample")(threads, arguments)
        return out

    return call


@direct_call("RoiAlign")
def roi_align(info: KernelInfo) -> EagerCall | None:
    """(regions, C, height, width) bins of regions of images (N, C, H, W)."""
    bins = (int(info.attribute("output_height", 1)), int(info.attribute("output_width", 1)))
    ratio, scale = int(info.attribute("sampling_ratio", 0)), np.float32(info.attribute("spatial_scale", 1.0))
    default_mode = "output_half_pixel" if info.since_version < 16 else "half_pixel"
    is_half = info.attribute("coordinate_transformation_mode", default_mode) == "half_pixel"
    mode = info.attribute("mode", "avg")
    if not _are_usual(info, inputs=2) or mode not in {"avg", "max"} or min(bins) < 1:
        return None
    workspace, results = workspace_of(info), ResultAllocator()

    def call(x: HostArray, rois: HostArray, images: HostArray) -> Any:
        if x.ndim != 4 or not x.size or not are_floats((x, rois)):
            return NotImplemented
        if not len(images) or images.ndim != 1 or rois.shape != (len(images), 4):
            return NotImplemented
        if not 0 <= images.min() <= images.max() < x.shape[0] or math.prod(x.shape[2:]) >= LARGEST_AREA:
            return NotImplemented
        regions = rois * scale - np.float32(0.5 if is_half else 0)
        regions[:, 2:] -= regions[:, :2]
        if not is_half:
            np.maximum(regions[:, 2:], 1, out=regions[:, 2:])
        most = _most_samples(regions, bins, ratio)
        room = -(-math.prod(bins) // LANES) * 4 * most * ENTRY_BYTES + TILE_BYTES
        work = len(rois) * x.shape[1] * math.prod(bins) * most * WORK
        if not most or room > MOST_TABLE_BYTES or not is_worth_a_task(work, MODULE, "roi_align"):
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        x, indices = _in_layout(x, work, workspace), np.ascontiguousarray(images, np.int64)
        out, threads = results.empty((len(rois), x.shape[1], *bins)), min(threads_for(work), len(rois))
        (_, channels, height, width), buffer = x.shape, workspace.buffer(MODULE, threads * room)
        options = (*bins, ratio, room, int(is_channels_last(x)), int(mode == "avg"))
        arguments = RoiAlign(x, regions, out, buffer, indices, channels, height, width, len(rois), *options)
        task_function(MODULE, "roi_align")(threads, arguments)
        return out

    return call


def _in_layout(x: HostArray, elements: int, workspace: Workspace) -> HostArray:
    """The images, contiguous: NHWC where so many elements are read of them that one load for all channels pays for the copy."""
    if x.shape[1] < LEAST_CHANNELS or (x.flags.c_contiguous and elements < x.size * LEAST_READS):
        return np.ascontiguousarray(x)
    if is_channels_last(x):
        return x
    nhwc = workspace.array(f"{MODULE} images", (x.shape[0], *x.shape[2:], x.shape[1]), x.dtype).transpose(0, 3, 1, 2)
    copy = strided_copy(x.shape, nhwc.strides, x.strides, x.itemsize, threads_for(x.size))
    if copy is None:
        return np.ascontiguousarray(x)
    copy.point(0, nhwc)
    copy.point(1, x)
    copy.run()
    return nhwc


def _most_samples(regions: HostArray, bins: tuple[int, int], ratio: int) -> int:
    """Samples in a bin of the region that has most; 0 where that is not a number the task takes."""
    if ratio > 0:
        return ratio * ratio
    counts = np.ceil(regions[:, :1:-1] / np.array(bins, np.float32))
    if not np.isfinite(counts).all():
        return 0
    found = counts.clip(0).prod(axis=1).max()
    return int(min(max(found, 1), MOST_TABLE_BYTES))
