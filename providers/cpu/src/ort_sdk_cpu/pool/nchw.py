"""Pooling of arrays in the order of their axes by a compiled task: no copy with channels last is made of them."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.pool import window_counts
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter, are_floats, is_worth_a_task, threads_for

__all__ = ["is_pooled_by_planes", "plane_geometry", "plane_writer"]

MODULE, NAME, FILMS = "plane_pooling", "pool_planes", "pool_films"
_COUNTS, _WORK, _FILM_COUNTS = (2, 3), 4, 20
_FLOAT, _VECTOR_BYTES = np.dtype(np.float32), 64
_LANES = 16
_LINES, _LINE_MEMORY = 8, 1 << 14
"""Rows of an output that a thread pools along columns before it does along rows, and their memory."""


def is_pooled_by_planes(x: HostArray, windows: Windows) -> bool:
    """Whether the task pools an array: float32, signals, pictures or films, in the order of its axes."""
    if x.ndim not in {3, 4, 5} or not are_floats([x]) or not x.flags.c_contiguous or min(windows.pads_begin) < 0:
        return False
    reads = math.prod((*x.shape[:2], *windows.output_shape, *windows.kernel_shape))
    return reads > 0 and x.size > 0 and is_worth_a_task(reads, MODULE, FILMS if x.ndim == 5 else NAME)


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
    return _PlaneWriter(math.prod(x.shape[:2]), windows.trimmed(), counts, otherwise)


class _PlaneWriter(TaskWriter):
    """Keeps the counts, and the memory that a thread makes lines in."""

    def __init__(self, channels: int, windows: Windows, counts: list[HostArray], otherwise: Writer) -> None:
        threads = threads_for(channels * _work(windows))
        # Two vectors are read from where the last window's taps begin.
        width = max(windows.extents[-1], windows.pads_begin[-1] + windows.input_shape[-1])
        line_bytes = (width * _FLOAT.itemsize // _VECTOR_BYTES + 5) * _VECTOR_BYTES
        lines = max(1, min(_LINES, _LINE_MEMORY // line_bytes))
        pictures = math.prod(windows.output_shape[:-2])
        sizes = (0, 0, 0, channels * pictures, *plane_geometry(windows), line_bytes, lines, *_film_geometry(windows))
        name = NAME if len(windows.input_shape) < 3 else FILMS
        super().__init__(MODULE, name, raw_arguments((0, 1), sizes), otherwise, threads)
        self._kept = [*counts, np.empty(threads * lines * line_bytes, np.uint8)]
        places = (*(_FILM_COUNTS, *_COUNTS)[-len(counts) :], _WORK) if counts else (_WORK,)
        for position, array in zip(places, self._kept, strict=True):
            self._call.point(position, array)


def _work(windows: Windows) -> int:
    """Elements of a few instructions each that pooling a channel takes as long as: of short rows, vectors are not full."""
    loaded, stored = (-(-shape[-1] // _LANES) for shape in (windows.input_shape, windows.output_shape))
    taps_down, taps_along = math.prod(windows.kernel_shape[:-1]), windows.kernel_shape[-1]
    rows = math.prod(windows.output_shape[:-1])
    return rows * _LANES * (taps_down * loaded + taps_along * stored)


def _film_geometry(windows: Windows) -> tuple[int, ...]:
    """The address of counts, and what ``plane_geometry`` has, along pictures; nothing of signals and pictures."""
    if len(windows.input_shape) < 3:
        return ()
    ones = (windows.input_shape, windows.output_shape, windows.kernel_shape, windows.strides, windows.dilations)
    return (0, *(values[0] for values in (*ones, windows.pads_begin)))


def plane_geometry(windows: Windows) -> tuple[int, ...]:
    """Sizes of input, output and windows, strides, dilations, paddings before, for two axes: a signal is a picture of one row."""

    def two(values: tuple[int, ...], first: int) -> tuple[int, int]:
        return (first, *values)[-2:]  # type: ignore[return-value]

    ones = (windows.input_shape, windows.output_shape, windows.kernel_shape, windows.strides, windows.dilations)
    return (*(size for values in ones for size in two(values, 1)), *two(windows.pads_begin, 0))
