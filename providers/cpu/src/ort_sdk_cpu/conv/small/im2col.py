"""Any convolution: im2col into workspace, one GEMM by NumPy's BLAS, then bias, sum and activation in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.windows import Windows
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.conv.problem import ConvProblem
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.writer import Writer
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform.threads import blas_matmul

from .padding import padder

__all__ = ["im2col_writer"]

COLUMN_ELEMENTS = 1 << 20
"""Most elements of columns that are made at once: 4 MiB of float32."""
DEPTHWISE_ELEMENTS = 1 << 18
"""The same for grouped convolutions, whose small GEMMs gain from columns in the second cache."""

Convolve = Callable[[HostArray, HostArray, HostArray], None]
"""``convolve(x, weight, out)``."""


def im2col_writer(
    problem: ConvProblem, windows: Windows, inputs: Sequence[Any], activate: InPlace | None, workspace: Workspace
) -> Writer:
    """A writer of activation(Conv(X, W, B) + Z), of any types that NumPy computes in.

    Args:
        problem: with the shapes of the inputs.
        windows: of them.
        inputs: X, W, B, Z; their shapes count.
        activate: the activation.
        workspace: the workspace.
    """
    x, weight = inputs[:2]
    convolve, rank = _convolution(windows, x.shape, weight.shape, problem.geometry.groups, workspace), x.ndim
    bias_shape = (-1, *(1,) * (rank - 2))

    def write(x: HostArray, weight: HostArray, *rest: Any) -> None:
        bias, added = (*rest[:-1], None, None)[:2]
        out = rest[-1]
        convolve(x, weight, out)
        if bias is not None:
            np.add(out, bias.reshape(bias_shape), out)
        if added is not None:
            np.add(out, added, out)
        if activate is not None:
            activate(out, out)

    return write


def _convolution(
    windows: Windows, x_shape: tuple[int, ...], weight_shape: tuple[int, ...], groups: int, workspace: Workspace
) -> Convolve:
    batch, channels = x_shape[:2]
    outputs, taps = weight_shape[0], math.prod(windows.kernel_shape)
    positions = math.prod(windows.output_shape)
    matrix_shape = (groups, outputs // groups, channels // groups * taps)
    result_shape = (batch, groups, outputs // groups, positions)
    if windows.is_pointwise:
        columns_shape = (batch, groups, channels // groups, positions)

        def pointwise(x: HostArray, weight: HostArray, out: HostArray) -> None:
            blas_matmul(weight.reshape(matrix_shape), x.reshape(columns_shape), out.reshape(result_shape))

        return pointwise
    plan = _Columns(windows, batch, channels, groups, workspace, padder(windows, 0, workspace))

    def general(x: HostArray, weight: HostArray, out: HostArray) -> None:
        plan.multiply(weight.reshape(matrix_shape), x, out.reshape(result_shape))

    return general


@dataclass(slots=True)
class _Columns:
    """im2col of some groups and output rows of one sample at a time."""

    windows: Windows
    batch: int
    channels: int
    groups: int
    workspace: Workspace
    pad: Callable[[HostArray], HostArray]

    def multiply(self, matrix: HostArray, x: HostArray, out: HostArray) -> None:
        """Products of a (groups, M / groups, K) weight with the columns of x, into (batch, groups, M / groups, positions)."""
        view = self._windows_by_group(x)
        rows, per_row = self.windows.output_shape[0], math.prod(self.windows.output_shape[1:])
        group_step, row_step = self._steps(matrix.shape[2])
        lead = (slice(None),) * (1 + len(self.windows.kernel_shape))
        for sample in range(self.batch):
            for group in range(0, self.groups, group_step):
                part = slice(group, group + group_step)
                for start in range(0, rows, row_step):
                    index: tuple[Any, ...] = (sample, part, *lead, slice(start, start + row_step))
                    block = view[index]
                    columns = self.workspace.array("columns", block.shape, x.dtype)
                    np.copyto(columns, block)
                    positions = slice(start * per_row, min(start + row_step, rows) * per_row)
                    blas_matmul(
                        matrix[part],
                        columns.reshape(block.shape[0], matrix.shape[2], positions.stop - positions.start),
                        out[sample, part, :, positions],
                    )

    def _windows_by_group(self, x: HostArray) -> HostArray:
        """(batch, groups, C / groups, *kernel, *output), a view of the padded input."""
        windows = self.windows
        source = self.pad(x)
        view = _NAMESPACE.sliding_windows(source, windows.kernel_shape, windows.strides, windows.dilations)
        return view.reshape(self.batch, self.groups, self.channels // self.groups, *view.shape[2:])

    def _steps(self, depth: int) -> tuple[int, int]:
        """Groups and output rows whose columns are made at a time."""
        rows, per_row = self.windows.output_shape[0], math.prod(self.windows.output_shape[1:])
        limit = DEPTHWISE_ELEMENTS if self.groups > 1 else COLUMN_ELEMENTS
        per_group = max(1, depth * rows * per_row)
        if per_group <= limit:
            return limit // per_group, max(1, rows)
        return 1, max(1, limit // max(1, depth * per_row))


_NAMESPACE = NumpyNamespace()
