"""DeformConv: im2row of bilinear samples by a compiled task, and a GEMM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes, Windows
from ort_sdk_cpu.conv.arguments.deformable import MODULE, SampleWindows
from ort_sdk_cpu.gemm.plan import GemmFunction
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.kernel.bindable import BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import workspace_of

__all__: list[str] = []

NAME = "sample_windows"
FLOAT = np.dtype(np.float32)
SAMPLE_WORK = 8
"""Elements of a few instructions each that one sampled takes as long as."""


class _DeformConv:
    """The node on images of float32.

    Args:
        info: the node.
        compute: the shared set's function, which refuses what is wrong.
    """

    def __init__(self, info: KernelInfo, compute: Any) -> None:
        self._windows_of, self._compute, self._workspace = WindowAttributes.of(info), compute, workspace_of(info)
        self._groups, self._offset_groups = int(info.attribute("group", 1)), int(info.attribute("offset_group", 1))

    def __call__(self, inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        """A writer."""
        if self._windows(inputs) is None:
            return copying_writer(self._compute)

        def write(*arrays: Any) -> None:
            windows = self._windows(arrays[:-1])
            if windows is None:
                np.copyto(arrays[-1], self._compute(*arrays[:-1]))
            else:
                self._write(windows, arrays[:-1], arrays[-1])

        return write

    def call(self, *inputs: HostArray | None) -> Any:
        """The result, or ``NotImplemented``."""
        windows = self._windows(inputs)
        if windows is None:
            return NotImplemented
        x, weight = inputs[:2]
        assert x is not None and weight is not None  # noqa: S101, PT018 - such windows were found
        out = np.moveaxis(np.empty((len(x), *windows.output_shape, len(weight)), FLOAT), -1, 1)
        self._write(windows, inputs, out)
        return out

    def _windows(self, inputs: Sequence[Any]) -> Windows | None:
        """The windows; None for what is computed otherwise: all but images that fit the weight and the offsets."""
        x, weight, offset, bias, mask = (*inputs, None, None)[:5]
        if not are_floats(inputs) or not x.ndim == weight.ndim == offset.ndim == 4 or not is_worth_a_task(x.size, MODULE, NAME):
            return None
        groups, channels = self._offset_groups, x.shape[1]
        if channels % groups or channels != weight.shape[1] * self._groups or len(weight) % self._groups or not weight.size:
            return None
        try:
            windows = self._windows_of.windows(x.shape[2:], weight.shape[2:])
        except InvalidArgument:
            return None
        taps = math.prod(windows.kernel_shape)
        fits = offset.shape == (len(x), 2 * groups * taps, *windows.output_shape) and offset.size > 0
        fits = fits and (mask is None or mask.shape == (len(x), groups * taps, *windows.output_shape))
        return windows if fits and (bias is None or bias.shape == (len(weight),)) else None

    def _write(self, windows: Windows, inputs: Sequence[Any], out: HostArray) -> None:
        x, weight, offset, bias, mask = (*inputs, None, None)[:5]
        rows = self._sampled(windows, x, offset, mask)
        taps = rows.reshape(len(rows), -1, x.shape[1])
        depth, outputs = weight.shape[1], len(weight) // self._groups
        for group in range(self._groups):
            channels, columns = (slice(group * size, (group + 1) * size) for size in (depth, outputs))
            own = np.ascontiguousarray(taps[:, :, channels])
            vector = None if bias is None else np.ascontiguousarray(bias[columns])
            self._gemm(own.reshape(len(rows), -1), weight[columns], vector, out[:, columns])

    def _gemm(self, rows: HostArray, weight: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write sums of a group's windows, straight into an NHWC output."""
        inner, outputs = rows.shape[1], len(weight)
        matrix = self._workspace.array("deformed weight", (*weight.shape[2:], weight.shape[1], outputs), FLOAT)
        copy_elements(matrix, weight.transpose(2, 3, 1, 0))
        pixels = np.moveaxis(out, 1, -1)
        sums = pixels if pixels.flags.c_contiguous else self._workspace.array("deformed sums", pixels.shape, FLOAT)
        GemmFunction(BLayout(inner, outputs), self._workspace)(len(rows), rows, matrix, bias, sums)
        if sums is not pixels:
            copy_elements(out, np.moveaxis(sums, -1, 1))

    def _sampled(self, windows: Windows, x: HostArray, offset: HostArray, mask: HostArray | None) -> HostArray:
        """Windows as rows (samples * output pixels, taps * channels)."""
        from ort_sdk_cpu.jit.task import task_function

        pixels, offset = self._in_rows("deformed pixels", np.moveaxis(x, 1, -1)), self._in_rows("offsets", offset)
        mask = None if mask is None else self._in_rows("factors", mask)
        count = len(x) * math.prod(windows.output_shape)
        width = math.prod(windows.kernel_shape) * x.shape[1]
        rows = self._workspace.array("deformed", (count, width), FLOAT)
        steps = (*windows.strides, *windows.dilations, *windows.pads_begin)
        sizes = (len(x), x.shape[1], *x.shape[2:], *windows.output_shape, *windows.kernel_shape, *steps, self._offset_groups)
        arguments = SampleWindows(pixels, offset, mask, rows, *sizes)
        task_function(MODULE, NAME)(threads_for(rows.size * SAMPLE_WORK), arguments)
        return rows

    def _in_rows(self, name: str, array: HostArray) -> HostArray:
        """The array, or a copy in row-major order that lasts until the next of its name."""
        if array.flags.c_contiguous:
            return array
        copy = self._workspace.array(name, array.shape, array.dtype)
        copy_elements(copy, array)
        return copy


class _DeformKernel(DirectBindableKernel):
    """Its result has channels last, as what samples it or is convolved with it wants."""

    binds_any_layout = True


@bindable("DeformConv")
def deform_conv(info: KernelInfo, compute: Any) -> MakeWriter:
    """Convolution whose taps are displaced."""
    return _DeformConv(info, compute)


@kernel_maker("DeformConv")
def for_any_shape(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The kernel over the task, for arrays of any shape."""
    return _DeformKernel(kernel, make_writer, make_writer.call) if isinstance(make_writer, _DeformConv) else None
