"""Pooling of arrays in the order of their axes by a compiled task: no copy with channels last is made of them."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.pool import window_counts
from ort_sdk.opset.nn.windows import Windows

from .bindable import Writer
from .task_writer import TaskWriter, are_floats, is_worth_a_task, threads_for

__all__ = ["is_pooled_by_planes", "plane_geometry", "plane_writer"]

MODULE, NAME = "plane_pooling", "pool_planes"
_COUNTS, _WORK = (2, 3), 4
_FLOAT, _VECTOR_BYTES = np.dtype(np.float32), 64


def is_pooled_by_planes(x: HostArray, windows: Windows) -> bool:
    """Whether the task pools an array: float32, signals or pictures, in the order of its axes."""
    if x.ndim not in {3, 4} or not are_floats([x]) or not x.flags.c_contiguous or min(windows.pads_begin) < 0:
        return False
    reads = math.prod((*x.shape[:2], *windows.output_shape, *windows.kernel_shape))
    return reads > 0 and x.size > 0 and is_worth_a_task(reads, MODULE, NAME)


def plane_writer(x: HostArray, windows: Windows, otherwise: Writer, *, include_pad: bool | None = None) -> Writer:
    """A writer of the maximum of each window, or of the mean.

    Args:
        x: an array like those it will get, which ``is_pooled_by_planes``.
        windows: where they lie.
        otherwise: writes arrays that lie otherwise.
        include_pad: whether padding counts in the mean; None for the maximum.
    """
    counts = [] if include_pad is None else window_counts(windows, include_pad, _FLOAT)
    if len(counts) == 1:
        counts.insert(0, np.ones(1, _FLOAT))
    return _PlaneWriter(math.prod(x.shape[:2]), windows, counts, otherwise)


class _PlaneWriter(TaskWriter):
    """Keeps the counts, and the memory that a thread makes lines in."""

    def __init__(self, planes: int, windows: Windows, counts: list[HostArray], otherwise: Writer) -> None:
        threads = threads_for(planes * math.prod((*windows.output_shape, *windows.kernel_shape)))
        # Two vectors are read from where the last window's taps begin.
        width = max(windows.extents[-1], windows.pads_begin[-1] + windows.input_shape[-1])
        work_bytes = (width * _FLOAT.itemsize // _VECTOR_BYTES + 5) * _VECTOR_BYTES
        super().__init__(MODULE, NAME, (0, 0, 0, planes, *plane_geometry(windows), work_bytes), (0, 1), otherwise, threads)
        self._kept = [*counts, np.empty(threads * work_bytes, np.uint8)]
        for position, array in zip((*_COUNTS[: len(counts)], _WORK), self._kept, strict=True):
            self._call.point(position, array)


def plane_geometry(windows: Windows) -> tuple[int, ...]:
    """Sizes of input, output and windows, strides, dilations, paddings before, for two axes: a signal is a picture of one row."""

    def two(values: tuple[int, ...], first: int) -> tuple[int, int]:
        return (first, *values)[-2:]  # type: ignore[return-value]

    ones = (windows.input_shape, windows.output_shape, windows.kernel_shape, windows.strides, windows.dilations)
    return (*(size for values in ones for size in two(values, 1)), *two(windows.pads_begin, 0))
