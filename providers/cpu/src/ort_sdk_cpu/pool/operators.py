"""Pooling into a given output, tap by tap along one axis after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.pool import along_axis, window_counts
from ort_sdk.opset.nn.windows import WindowAttributes, Windows
from ort_sdk_cpu.conv.small.padding import padder
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import TaskWriter
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of

from .argmax import max_pool_with_indices_writer
from .arguments.nhwc import MODULE as NHWC
from .arguments.nhwc import MaxPoolNhwc
from .arguments.windows import axes_dhw
from .nchw import nchw_writer
from .select import PoolAlgorithm, PoolProblem, select_pool

__all__: list[str] = []


@bindable("MaxPool")
def max_pool(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Maximum of each window, and where it is if that is asked for."""
    attributes, workspace = WindowAttributes.of(info), workspace_of(info)
    if info.wants_output(1):
        return max_pool_with_indices_writer(
            attributes, compute, workspace, is_column_major=bool(info.attribute("storage_order", 0))
        )

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[PoolAlgorithm, Writer]:
        x = inputs[0]
        if 0 in outputs[0].shape:
            return PoolAlgorithm.NUMPY, _nothing
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        windows = attributes.windows(x.shape[2:]).trimmed()
        otherwise = _reducer(np.maximum, windows, lowest, workspace)
        algorithm = select_pool(_problem(x, windows, is_maximum=True))
        if algorithm is PoolAlgorithm.NCHW:
            return algorithm, nchw_writer(x, windows, otherwise)
        is_single = algorithm is PoolAlgorithm.SINGLE_CHANNEL
        return algorithm, _single_channel_writer(windows, x, otherwise) if is_single else otherwise

    return SelectingMaker(make)


def _nothing(*_arrays: HostArray) -> None:
    """Writes results without elements."""


def _problem(x: HostArray, windows: Windows, *, is_maximum: bool) -> PoolProblem:
    """As it is where the kernel of channels last left the node to others."""
    return PoolProblem.of(x, windows, is_maximum=is_maximum, is_channels_last=False, has_nhwc=False)


def _single_channel_writer(windows: Windows, x: HostArray, otherwise: Writer) -> Writer:
    """The largest of few windows by the task that others use with channels last: each channel is a sample of one."""
    arguments = MaxPoolNhwc(Operand(0), Operand(1), math.prod(x.shape[:2]), 1, *axes_dhw(windows))
    return TaskWriter(NHWC, "max_pool_nhwc", arguments, otherwise)


@bindable("AveragePool")
def average_pool(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Mean of each window."""
    attributes, workspace = WindowAttributes.of(info), workspace_of(info)
    include_pad = bool(info.attribute("count_include_pad", 0))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[PoolAlgorithm, Writer]:
        x = inputs[0]
        if 0 in outputs[0].shape:
            return PoolAlgorithm.NUMPY, _nothing
        windows = attributes.windows(x.shape[2:])
        counts = window_counts(windows, include_pad, outputs[0].dtype)
        divisors = [count.reshape(-1, *(1 for _ in counts[axis + 1 :])) for axis, count in enumerate(counts)]

        reduce = _reducer(np.add, windows.trimmed(), 0.0, workspace)

        def write(x: HostArray, out: HostArray) -> None:
            reduce(x, out)
            for divisor in divisors:
                np.divide(out, divisor, out)

        algorithm = select_pool(_problem(x, windows, is_maximum=False))
        is_nchw = algorithm is PoolAlgorithm.NCHW
        return algorithm, nchw_writer(x, windows, write, include_pad=include_pad) if is_nchw else write

    return SelectingMaker(make)


@bindable("GlobalAveragePool")
def global_average_pool(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """Mean over all spatial axes."""

    def write(x: HostArray, out: HostArray) -> None:
        if x.size:
            np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True, out=out)
        else:
            out.fill(np.nan)  # NumPy warns of a mean of nothing.

    return lambda _inputs, _outputs: write


@bindable("GlobalMaxPool")
def global_max_pool(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """Maximum over all spatial axes."""
    return lambda _inputs, _outputs: lambda x, out: np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True, out=out)


@kernel_maker("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def pool_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> Any:
    """The kernel that takes channels last, where there is one for the node."""
    if info.wants_output(1):
        return None
    from .channels_last import kernel_for

    return kernel_for(info, BindableKernel(kernel, make_writer))


def _reducer(combine: Any, windows: Windows, value: float, workspace: Workspace) -> Callable[[HostArray, HostArray], None]:
    """Combines the elements of each window; padding holds ``value``, which is neutral."""
    rows, shape = [], windows.input_shape
    for axis in range(len(shape)):
        rows.append(along_axis(windows, axis, shape))
        shape = rows[-1].output_shape
    slices = [_taps(row, axis) for axis, row in enumerate(rows)]
    padders = [padder(row, value, workspace) for row in rows]
    last = len(rows) - 1

    def reduce(x: HostArray, out: HostArray) -> None:
        source = x
        for axis, row in enumerate(rows):
            name = f"pooled{axis % 2}"
            target = out if axis == last else workspace.array(name, (*x.shape[:2], *row.output_shape), x.dtype)
            _combine(combine, padders[axis](source), slices[axis], target)
            source = target

    return reduce


def _taps(windows: Windows, axis: int) -> list[tuple[slice, ...]]:
    """Per tap along an axis, what it reads of the padded input for all windows."""
    step, dilation = windows.strides[axis], windows.dilations[axis]
    length = (windows.output_shape[axis] - 1) * step + 1
    starts = range(0, windows.kernel_shape[axis] * dilation, dilation)
    return [(*(slice(None),) * (2 + axis), slice(start, start + length, step)) for start in starts]


def _combine(combine: Any, padded: HostArray, taps: Sequence[tuple[slice, ...]], out: HostArray) -> None:
    if len(taps) == 1:
        np.copyto(out, padded[taps[0]])
        return
    combine(padded[taps[0]], padded[taps[1]], out=out)
    for tap in taps[2:]:
        combine(out, padded[tap], out=out)
