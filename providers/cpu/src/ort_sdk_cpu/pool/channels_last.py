"""MaxPool, AveragePool and their global forms on channels-last data: by oneDNN, the largest float32 by a compiled task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.nn.windows import WindowAttributes, Windows
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.layouts.call import LayoutCall
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall, ChannelsLastKernel
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous, is_channels_last, layout_of
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.kernel.onednn import PrimitiveCall
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.onednn.constants import Algorithm, Argument
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.onednn.primitive import Primitive, pooling
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.reduction.launch import ReductionCall, TaskReduction, reduction_call
from ort_sdk_cpu.reduction.select import ReduceOp

from .arguments.nhwc import MODULE, MaxPoolNhwc
from .arguments.windows import axes_dhw
from .select import CHANNELS_LAST, PoolAlgorithm, PoolProblem, select_pool

__all__ = ["MaxPoolKernel", "PoolKernel", "kernel_for"]

_AVERAGED = (TensorElementType.FLOAT,)
_COMPARED = (TensorElementType.FLOAT, TensorElementType.UINT8, TensorElementType.INT8)


def kernel_for(info: KernelInfo, kernel: Any) -> PoolKernel | None:
    """A pooling node's kernel that takes channels last; None if there is none that is right and fast.

    oneDNN starts from the least finite number and passes over NaN, so the largest float32 is not left to it.

    Args:
        info: the node, whose output 0 alone is asked for.
        kernel: computes what this one does not.
    """
    is_maximum = info.op_type.endswith("MaxPool")
    element_type = info.input_element_type(0)
    if element_type not in (_COMPARED if is_maximum else _AVERAGED) or not is_available():
        return None
    if is_maximum and element_type is TensorElementType.FLOAT:
        return MaxPoolKernel(info, kernel) if libraries.compiled_kernels().is_usable else None
    return PoolKernel(info, kernel)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Windows in oneDNN's words."""

    windows: Windows
    ends: tuple[int, ...]
    """Padding behind each axis that windows reach into."""

    @classmethod
    def of(cls, windows: Windows) -> _Pool:
        rows = zip(windows.extents, windows.pads_begin, windows.input_shape, strict=True)
        return cls(windows, tuple(max(0, extent - begin - size) for extent, begin, size in rows))

    def is_regular(self, *, includes_padding: bool) -> bool:
        """Whether each window holds an element of the input, and padding that counts is all the node's own."""
        windows = self.windows
        for axis, taps in enumerate(windows.kernel_shape):
            span = (taps - 1) * windows.dilations[axis] + 1
            if not 0 <= windows.pads_begin[axis] < span or self.ends[axis] >= span:
                return False
            if windows.dilations[axis] > 1 and (windows.pads_begin[axis] or self.ends[axis]):
                return False
            if includes_padding and self.ends[axis] > windows.pads_end[axis]:
                return False
        return True


class PoolKernel(ChannelsLastKernel):
    """Maximum or mean of windows.

    Args:
        info: the node.
        kernel: computes what this one does not.
    """

    _algorithm_of_fallback = PoolAlgorithm.NUMPY
    _used: PoolAlgorithm | None = None

    def __init__(self, info: KernelInfo, kernel: Any) -> None:
        super().__init__(info, kernel)
        self._is_global = info.op_type.startswith("Global")
        self._attributes = WindowAttributes.of(info)
        self._includes_padding = False
        self._algorithm = Algorithm.POOLING_MAX
        if info.op_type.endswith("AveragePool"):
            self._includes_padding = bool(info.attribute("count_include_pad", 0))
            self._algorithm = Algorithm.POOLING_AVERAGE_EXCLUDE_PADDING
            if self._includes_padding:
                self._algorithm = Algorithm.POOLING_AVERAGE_INCLUDE_PADDING

    def _windows(self, spatial: tuple[int, ...]) -> Windows:
        if not self._is_global:
            windows = self._attributes.windows(spatial)
            return windows if self._counts_padding(windows) else windows.trimmed()
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        return Windows(spatial, spatial, ones, ones, zeros, zeros, ones)

    def _counts_padding(self, windows: Windows) -> bool:
        return self._includes_padding and any((*windows.pads_begin, *windows.pads_end))

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, C, *spatial), if it is computed with channels last."""
        x = inputs[0]
        if not 3 <= x.ndim <= 5 or 0 in x.shape:
            return None
        windows = self._windows(x.shape[2:])
        is_maximum, is_last = self._algorithm == Algorithm.POOLING_MAX, is_channels_last(x)
        problem = PoolProblem.of(
            x, windows, is_maximum=is_maximum, is_global=self._is_global, is_channels_last=is_last, has_nhwc=True
        )
        self._used = select_pool(problem)
        return (*x.shape[:2], *windows.output_shape) if self._used in CHANNELS_LAST else None

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X."""
        return [inputs[0]]

    def make_call(self, _inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
        """The primitive on arrays of these layouts; the reduction of all pixels is a task, where there is one."""
        x = operands[0]
        call = self._reduced(x, out)
        if call is not None:
            self._used = PoolAlgorithm.REDUCTION
            return call
        self._used = PoolAlgorithm.ONEDNN
        primitive = self._primitive(x, out.shape)
        return None if primitive is None else PrimitiveCall(primitive, _arguments(x, out), (), self.workspace)

    def _reduced(self, x: HostArray, out: HostArray) -> ReductionCall | None:
        if not self._is_global:
            return None
        mean = TaskReduction(ReduceOp.SUM, divisor=float(math.prod(x.shape[2:])))
        reduction = TaskReduction(ReduceOp.MAX) if self._algorithm == Algorithm.POOLING_MAX else mean
        return reduction_call(reduction, x, range(2, x.ndim), out)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """Means of all pixels, by NumPy: no task or primitive is made for a shape that comes once."""
        x, target = np.moveaxis(inputs[0], 1, -1), np.moveaxis(out, 1, -1)
        if not self._is_global or self._algorithm == Algorithm.POOLING_MAX or not x.flags.c_contiguous:
            return False
        samples, channels = x.shape[0], x.shape[-1]
        self._used = PoolAlgorithm.NUMPY
        np.mean(x.reshape(samples, -1, channels), axis=1, keepdims=True, out=target.reshape(samples, 1, channels))
        return True

    def _primitive(self, x: HostArray, shape: tuple[int, ...]) -> Primitive | None:
        pool, algorithm = _Pool.of(self._windows(x.shape[2:])), self._algorithm
        windows = pool.windows
        if self._includes_padding and not self._counts_padding(windows) and any(pool.ends):
            algorithm = Algorithm.POOLING_AVERAGE_EXCLUDE_PADDING
        if not pool.is_regular(includes_padding=algorithm == Algorithm.POOLING_AVERAGE_INCLUDE_PADDING):
            return None
        source, target = channels_last(x.shape, x.dtype), channels_last(shape, x.dtype)
        geometry = (windows.strides, windows.kernel_shape, windows.dilations, windows.pads_begin, pool.ends)
        return pooling(algorithm, source, target, *geometry)


class MaxPoolKernel(PoolKernel):
    """Maximum of windows of float32. Arguments as for ``PoolKernel``."""

    def make_call(self, _inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
        """The task on arrays of these layouts."""
        x = operands[0]
        reduced = self._reduced(x, out)
        if reduced is not None:
            self._used = PoolAlgorithm.REDUCTION
            return reduced
        self._used = PoolAlgorithm.NHWC
        windows = self._windows(x.shape[2:])
        threads = threads_for(out.size * math.prod(windows.kernel_shape))
        call = TaskCall(MODULE, "max_pool_nhwc", MaxPoolNhwc(0, 0, x.shape[0], x.shape[1], *axes_dhw(windows)), threads)
        fields: dict[int, int] = {Argument.SRC: MaxPoolNhwc.x, Argument.DST: MaxPoolNhwc.out}
        execution = TaskExecution(call, fields, self.workspace)
        return LayoutCall(execution, _arguments(x, out), self.workspace)


def _arguments(x: HostArray, out: HostArray) -> list[tuple[int, Layout, Layout]]:
    return [
        (argument, layout_of(array) or contiguous(array.shape, array.dtype), channels_last(array.shape, array.dtype))
        for argument, array in ((Argument.SRC, x), (Argument.DST, out))
    ]
