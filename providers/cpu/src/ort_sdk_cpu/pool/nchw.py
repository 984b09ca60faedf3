"""MaxPool and AveragePool of contiguous NCHW and NCDHW by a compiled task: no channels-last copy is made."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.nn.pool import window_counts
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.task_writer import TaskWriter, threads_for
from ort_sdk_cpu.kernel.writer import Writer

from .arguments.nchw import MODULE, PoolNcdhw, PoolNchw
from .arguments.windows import axes_dhw
from .select import nchw_task

__all__ = ["nchw_writer"]

_FLOAT, _VECTOR_BYTES = np.dtype(np.float32), 64
_LANES = 16
_LINES, _LINE_MEMORY = 8, 1 << 14
"""Rows of an output that a thread pools along columns before it does along rows, and their memory."""


def nchw_writer(x: HostArray, windows: Windows, otherwise: Writer, *, include_pad: bool | None = None) -> Writer:
    """A writer of the maximum of each window, or of the mean.

    Args:
        x: an array like those it will get, for which ``PoolAlgorithm.NCHW`` was selected.
        windows: of the node for that shape.
        otherwise: writes arrays of other layouts.
        include_pad: whether padding counts in the mean; None for the maximum.
    """
    counts = [] if include_pad is None else window_counts(windows, include_pad, _FLOAT)
    if len(counts) == 1:
        counts.insert(0, np.ones(1, _FLOAT))
    return _NchwWriter(math.prod(x.shape[:2]), windows.trimmed(), counts, otherwise)


class _NchwWriter(TaskWriter):
    """Keeps the counts, and the memory that a thread makes lines in."""

    def __init__(self, channels: int, windows: Windows, counts: list[HostArray], otherwise: Writer) -> None:
        threads = threads_for(channels * _work(windows))
        # Two vectors are read from where the last window's taps begin.
        width = max(windows.extents[-1], windows.pads_begin[-1] + windows.input_shape[-1])
        line_bytes = (width * _FLOAT.itemsize // _VECTOR_BYTES + 5) * _VECTOR_BYTES
        lines = max(1, min(_LINES, _LINE_MEMORY // line_bytes))
        self._kept = [*counts, np.empty(threads * lines * line_bytes, np.uint8)]
        arguments = _arguments(windows, channels, line_bytes, lines)
        super().__init__(MODULE, nchw_task(len(windows.input_shape)), arguments, otherwise, threads)
        *_, workspace = self._kept
        fields = (PoolNcdhw.plane_counts, PoolNchw.row_counts, PoolNchw.column_counts)
        for field, array in zip(fields[-len(counts) :] if counts else (), counts, strict=True):
            self._call.point(field, array)
        self._call.point(PoolNchw.workspace, workspace)


def _arguments(windows: Windows, channels: int, line_bytes: int, lines: int) -> PoolNchw:
    """Of the task, without counts and workspace."""
    planes, (d, h, w) = channels * math.prod(windows.output_shape[:-2]), axes_dhw(windows)
    if len(windows.input_shape) < 3:
        return PoolNchw(Operand(0), Operand(1), 0, 0, 0, planes, h, w, line_bytes, lines)
    return PoolNcdhw(Operand(0), Operand(1), 0, 0, 0, planes, h, w, line_bytes, lines, 0, d)


def _work(windows: Windows) -> int:
    """Elements of a few instructions each that pooling a channel takes as long as: of short rows, vectors are not full."""
    loaded, stored = (-(-shape[-1] // _LANES) for shape in (windows.input_shape, windows.output_shape))
    taps_down, taps_along = math.prod(windows.kernel_shape[:-1]), windows.kernel_shape[-1]
    rows = math.prod(windows.output_shape[:-1])
    return rows * _LANES * (taps_down * loaded + taps_along * stored)
