"""Convolution into a given output: columns in working memory, one matrix product, then bias, sum and activation in place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.nn.conv_transpose import TransposeAttributes
from ort_sdk.opset.nn.windows import WindowAttributes, Windows
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.elementwise.activation import InPlace, in_place_activation
from ort_sdk_cpu.kernel.bound import BindableKernel, FirstMaker, MakeWriter, Writer, bindable, copied, first_made_by, made_by
from ort_sdk_cpu.memory.workspace import Scratch, scratch_of
from ort_sdk_cpu.platform.threads import matrix_product

from .few_windows import window_writer
from .naive import small_writer, small_writer_transposed
from .padding import padder

__all__: list[str] = []

WEIGHT = 1

COLUMN_ELEMENTS = 1 << 20
"""Largest column matrix made at once."""
DEPTHWISE_ELEMENTS = 1 << 18
"""The same for grouped convolutions, whose small products gain from columns in the cache."""

Convolve = Callable[[HostArray, HostArray, HostArray], None]
"""``convolve(x, weight, out)``."""


@bindable("Conv", has_weight=True)
@bindable("FusedConv", domain="com.microsoft", has_weight=True)
def conv(info: KernelInfo, _compute: Any) -> MakeWriter:
    """activation(Conv(X, W, B) + Z)."""
    scratch = scratch_of(info)

    @functools.cache  # most nodes are computed by another kernel
    def parts() -> tuple[WindowAttributes, int, InPlace | None]:
        return WindowAttributes.of(info), int(info.attribute("group", 1)), _activation(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, weight = inputs[:2]
        attributes, groups, activate = parts()
        windows = attributes.windows(x.shape[2:], weight.shape[2:])
        convolve = _convolution(windows, x.shape, weight.shape, groups, scratch)
        written = _with_epilogue(convolve, outputs[0].ndim, activate)
        return window_writer(info, windows, inputs, written) or small_writer(info, windows, inputs, written) or written

    return make


@bindable("ConvTranspose")
def conv_transpose(info: KernelInfo, compute: Any) -> MakeWriter:
    """The shared set's function, whose result is copied, or a task."""
    attributes, groups, write = TransposeAttributes.of(info), int(info.attribute("group", 1)), copied(compute)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        windows = attributes.windows(inputs[0].shape[2:], inputs[1].shape[2:])
        return small_writer_transposed(groups, windows, inputs, write) or write

    return make


@made_by("Conv", "ConvTranspose")
@made_by("FusedConv", domain="com.microsoft")
def conv_over_onednn(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel over oneDNN where that computes the node fast."""
    from .onednn import with_onednn

    return with_onednn(info, BindableKernel(kernel, make_writer), _activation(info))


@first_made_by("Conv", "ConvTranspose")
@first_made_by("FusedConv", domain="com.microsoft")
def conv_over_products(info: KernelInfo, make_usual: Callable[[], Any]) -> Any:
    """The kernel over products of compiled code, or another task, for windows along one axis or side by side."""
    return next((kernel for make in _own_makers(info) if (kernel := make(info, make_usual)) is not None), None)


def _own_makers(info: KernelInfo) -> Iterator[FirstMaker]:
    """What may make the kernel of a node with such a weight; a module is imported when the one before has none."""
    weight = info.constants.get(WEIGHT)
    rank = 0 if weight is None else len(weight.shape) - 2
    if info.op_type == "ConvTranspose":
        if rank == 2:
            from .transposed_gemm import with_windows_apart

            yield with_windows_apart
        if rank in {1, 2}:
            from .transposed_col2im import with_spread_windows

            yield with_spread_windows
        return
    if rank in {1, 2}:
        from .conv_1d import with_windows

        yield with_windows
    if rank == 1:
        from .depthwise_1d import with_filters

        yield with_filters
    if rank in {2, 3}:
        from .patch_embedding import with_patches

        yield with_patches


def _activation(info: KernelInfo) -> InPlace | None:
    if not info.attribute("activation", ""):
        return None
    parameters = info.attribute("activation_params", None) or ()
    return in_place_activation(info, parameters, fused_activation(info, NumpyNamespace(), parameters))


def _with_epilogue(convolve: Convolve, rank: int, activate: InPlace | None) -> Writer:
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
    windows: Windows, x_shape: tuple[int, ...], weight_shape: tuple[int, ...], groups: int, scratch: Scratch
) -> Convolve:
    batch, channels = x_shape[:2]
    outputs, taps = weight_shape[0], math.prod(windows.kernel_shape)
    positions = math.prod(windows.output_shape)
    matrix_shape = (groups, outputs // groups, channels // groups * taps)
    result_shape = (batch, groups, outputs // groups, positions)
    if windows.is_pointwise:
        columns_shape = (batch, groups, channels // groups, positions)

        def pointwise(x: HostArray, weight: HostArray, out: HostArray) -> None:
            matrix_product(weight.reshape(matrix_shape), x.reshape(columns_shape), out.reshape(result_shape))

        return pointwise
    plan = _Columns(windows, batch, channels, groups, scratch, padder(windows, 0, scratch))

    def general(x: HostArray, weight: HostArray, out: HostArray) -> None:
        plan.multiply(weight.reshape(matrix_shape), x, out.reshape(result_shape))

    return general


@dataclass(slots=True)
class _Columns:
    """Windows laid out as columns, some groups and output rows of one sample at a time."""

    windows: Windows
    batch: int
    channels: int
    groups: int
    scratch: Scratch
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
                    columns = self.scratch.array("columns", block.shape, x.dtype)
                    np.copyto(columns, block)
                    positions = slice(start * per_row, min(start + row_step, rows) * per_row)
                    matrix_product(
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
