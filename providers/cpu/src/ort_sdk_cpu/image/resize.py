"""Resize and Upsample that keep images channels last in memory, and write straight into the output."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeGuard

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.tensor.resize import Resizer
from ort_sdk_cpu.kernel.bindable import bindable, kernel_maker
from ort_sdk_cpu.kernel.layouts.any_layout import AnyLayoutKernel
from ort_sdk_cpu.kernel.layouts.contiguous import ChannelsLastOutput, ContiguousInput
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.parameters import BYTES

from .arguments.interpolation import MODULE
from .interpolation import NCHW, NHWC, InterpolationWriter, NchwBytesWriter, interpolated, interpolation_of
from .nearest import nearest_writer

__all__: list[str] = []

Compute = Callable[..., HostArray]

_INTERPOLATED = frozenset({TensorElementType.FLOAT, TensorElementType.UINT8, TensorElementType.INT8})


@bindable("Resize", "Upsample", any_layout=True)
def resize(info: KernelInfo, compute: Compute) -> MakeWriter | None:
    """The shared set's function; nearest pixels of images by one copy of rows."""
    if info.attribute("axes", None) is not None:
        return None
    in_memory_order, workspace = _in_memory_order(compute), workspace_of(info)
    truncates = not info.attribute("antialias", 0)
    find = interpolation_of(compute) if _is_interpolated(compute, info, _INTERPOLATED) else None

    def general(*arrays: Any) -> None:
        np.copyto(arrays[-1], in_memory_order(*arrays[:-1]))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        is_plane = x.ndim == 4 and x.shape[:2] == out.shape[:2] and 0 not in (*x.shape, *out.shape)
        is_last = is_channels_last(x) and not x.flags.c_contiguous
        if find is not None and is_worth_a_task(x.size, MODULE, NHWC if is_last else NCHW):
            made = find(x.shape, *inputs[1:])
            if made is None or (made.is_last and is_last):
                return general
            is_last = is_last or made.is_last
            if x.dtype in BYTES and not (made.is_exact and truncates):
                return general
            if x.dtype in BYTES and not is_last:
                return NchwBytesWriter(made, workspace, general)
            is_permuted = is_last and not made.is_last and not is_channels_last(out)
            permutes_input = is_permuted and x.dtype not in BYTES and x.size <= out.size
            is_last = is_last and not permutes_input
            writer = InterpolationWriter(made, len(inputs), general, is_channels_last=is_last, dtype=x.dtype)
            return writer if not is_permuted else (ContiguousInput if permutes_input else ChannelsLastOutput)(writer, workspace)
        if not is_plane or info.attribute("mode", "nearest") != "nearest" or _may_extrapolate(info):
            return general
        sources = _sources(compute, inputs, out)
        pixels = _Pixels(sources, general)
        permutes_input = is_last and not is_channels_last(out)
        nearest = nearest_writer(sources, x, out, len(inputs), pixels, is_last=is_last and not permutes_input) or pixels
        return ContiguousInput(nearest, workspace) if permutes_input else nearest

    return make


def _is_interpolated(
    compute: Compute, info: KernelInfo, types: Container[TensorElementType | None] = (TensorElementType.FLOAT,)
) -> TypeGuard[Resizer]:
    """Whether elements may be weighted sums of numbers of some types."""
    is_fit = info.input_element_type(0) in types and libraries.compiled_kernels().is_usable
    return is_fit and isinstance(compute, Resizer) and info.attribute("mode", "nearest") != "nearest"


@kernel_maker("Resize", "Upsample")
def keeping_layout(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> AnyLayoutKernel:
    """The kernel whose result has the layout of its input."""
    made = _ResizeKernel(kernel, make_writer, is_elementwise=False)
    made.run = _in_memory_order(kernel.compute)
    if _is_interpolated(kernel.compute, info):
        made.run = interpolated(kernel.compute, made.run)
    return made


class _ResizeKernel(AnyLayoutKernel):
    run: Compute

    @property
    def compute(self) -> Compute:
        """The task, or the shared set's function on the axes from the outermost in memory to the innermost."""
        return self.run


def _may_extrapolate(info: KernelInfo) -> bool:
    return bool(info.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize")


def _in_memory_order(compute: Compute) -> Compute:
    """The function, given the axes as (N, *spatial, C) where that is row-major: it treats all axes alike."""

    def run(x: HostArray, *parameters: HostArray | None) -> HostArray:
        if x.ndim < 3 or not is_channels_last(x):
            return compute(x, *parameters)
        permuted = [_permuted(parameter, x.ndim) for parameter in parameters]
        return np.moveaxis(compute(np.moveaxis(x, 1, -1), *permuted), -1, 1)

    return run


def _permuted(parameter: HostArray | None, rank: int) -> HostArray | None:
    """Numbers for each axis, or for each axis's begin and end, with those of axis 1 behind the others."""
    if parameter is None or not parameter.size or parameter.size % rank:
        return parameter
    order = (0, *range(2, rank), 1)
    return parameter.reshape(-1, rank)[:, order].reshape(-1)


def _sources(compute: Compute, inputs: Sequence[Any], out: HostArray) -> HostArray:
    """Which pixel of a plane each pixel of the output is, both counted row by row: int64, (rows * columns,)."""
    x, *parameters = inputs
    numbers = np.arange(x.shape[2] * x.shape[3], dtype=np.float64).reshape(1, 1, *x.shape[2:])
    if len(parameters) == 3 and parameters[2] is not None and parameters[2].size:
        parameters[2] = np.array([1, 1, *out.shape[2:]], np.int64)
    return compute(numbers, *parameters).reshape(-1).astype(np.int64)


class _Pixels:
    """Writes pixels of planes.

    Args:
        sources: which pixel of the input each of the output is.
        general: writes other layouts.
    """

    def __init__(self, sources: HostArray, general: Writer) -> None:
        self._sources, self._general = sources, general

    def __call__(self, *arrays: Any) -> None:
        """Copy rows of channels, or elements of planes."""
        x, out = arrays[0], arrays[-1]
        samples, channels = x.shape[:2]
        if is_channels_last(x) and is_channels_last(out):
            source, target = np.moveaxis(x, 1, -1), np.moveaxis(out, 1, -1)
            shape, axis = (samples, -1, channels), 1
        elif x.flags.c_contiguous and out.flags.c_contiguous:
            source, target, shape, axis = x, out, (samples, channels, -1), 2
        else:
            self._general(*arrays)
            return
        np.take(source.reshape(shape), self._sources, axis, target.reshape(shape), mode="clip")
