"""Convolutions along one axis with one filter per channel: a compiled task on NHWC data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.conv.arguments.depthwise import MODULE, Depthwise
from ort_sdk_cpu.conv.problem import ConvAlgorithm, ConvProblem
from ort_sdk_cpu.conv.specialized import FLOAT, MAX_1D_BYTES, TEAM_WORK, SpecializedConvKernel
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.layouts.memory import is_nhwc
from ort_sdk_cpu.kernel.task_writer import team_for
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["Depthwise1dKernel"]


@dataclass(frozen=True, slots=True)
class Filters:
    """One filter per channel, zeros before the input and behind it, and what is done to results."""

    channels: int
    taps: int
    stride: int
    dilation: int
    begin: int
    end: int
    activation: Activation

    @classmethod
    def of(cls, problem: ConvProblem) -> Filters:
        """A node's."""
        (channels, _, taps), windows = problem.weight_shape or (0, 0, 0), problem.geometry.windows
        (begin,), (end,) = windows.explicit_pads(1)
        (stride,), (dilation,) = problem.per_axis("strides"), problem.per_axis("dilations")
        return cls(channels, taps, stride, dilation, begin, end, problem.activation or IDENTITY)

    def count(self, length: int) -> int:
        """Windows along a length."""
        return (self.begin + length + self.end - (self.taps - 1) * self.dilation - 1) // self.stride + 1

    def call(self, samples: int, length: int) -> TaskCall:
        """The task, but for its arrays."""
        count = self.count(length)
        threads = team_for(samples * count * self.taps * self.channels, TEAM_WORK)
        along = ("height", "rows", "taps_down", "step_down", "dilation_down", "top")
        across = ("width", "columns", "taps_right", "step_right", "dilation_right", "left")
        # Threads share rows: the input is one column of them, or, for one thread, one row.
        axis, other = (along, across) if threads > 1 else (across, along)
        sizes = dict(zip(axis, (length, count, self.taps, self.stride, self.dilation, self.begin), strict=True))
        sizes |= dict(zip(other, (1, 1, 1, 1, 1, 0), strict=True))
        arguments = Depthwise(
            x=0,
            filters=0,
            bias=0,
            out=0,
            samples=samples,
            channels=self.channels,
            **sizes,
            activation=int(self.activation.kind),
            alpha=float(self.activation.alpha),
            beta=float(self.activation.beta),
        )
        return TaskCall(MODULE, "depthwise", arguments, threads)


class Depthwise1dKernel(SpecializedConvKernel):
    """Y[n, c, t] = activation(bias[c] + sum over k of X[n, c, t * stride + k * dilation - begin] * W[c, 0, k]).

    Arguments as for ``SpecializedConvKernel``.
    """

    own_algorithm = ConvAlgorithm.DEPTHWISE_1D

    def __init__(self, info: KernelInfo, make_general: Callable[[], Any], problem: ConvProblem) -> None:
        super().__init__(info, make_general, problem)
        self._filters = Filters.of(problem)

    def _takes(self, x: HostArray) -> bool:
        is_fit = x.dtype == FLOAT and x.ndim == 3 and x.shape[1] == self._filters.channels and x.size > 0
        return is_fit and self._filters.count(x.shape[2]) > 0

    def _new_output(self, x: HostArray) -> HostArray:
        samples, channels, length = x.shape
        return np.empty((samples, self._filters.count(length), channels), FLOAT).transpose(0, 2, 1)

    def _output(self, out: HostArray) -> HostArray:
        """(N, windows, C)."""
        return out.transpose(0, 2, 1)

    def _launch(self, x: HostArray) -> _Filtered:
        return _Filtered(x.shape, self._filters, self._workspace)

    def _arranged(self, weight: HostArray) -> HostArray:
        return np.ascontiguousarray(weight.reshape(self._filters.channels, -1).T)


class _Filtered:
    """Inputs of one shape. For one thread at a time."""

    def __init__(self, shape: tuple[int, ...], filters: Filters, workspace: Workspace) -> None:
        samples, channels, length = shape
        self._shape, self._workspace, self._call = (samples, length, channels), workspace, filters.call(samples, length)

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        """Write (N, windows, C)."""
        rows_in = x.transpose(0, 2, 1)
        if not is_nhwc(x):
            copied = self._workspace.array("rows_in", self._shape, FLOAT)
            np.copyto(copied, rows_in)
            rows_in = copied
        self._aim(rows_in, matrix, bias, rows)
        self._call.run()

    def bind_arrays(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; a short one of another layout has memory of its own."""
        if is_nhwc(x):
            self._aim(x, matrix, bias, rows)
            return self._call.bound_call(self, x, matrix, bias, rows)
        if x.nbytes > MAX_1D_BYTES:
            return functools.partial(self, x, matrix, bias, rows)
        rows_in = np.empty(self._shape, FLOAT)
        copy = CopyWriter(lambda: [(rows_in, x.transpose(0, 2, 1))]).bind_arrays()
        self._aim(rows_in, matrix, bias, rows)
        return in_sequence([copy, self._call.bound_call(self, rows_in, matrix, bias, rows)])

    def _aim(self, rows_in: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        call = self._call
        call.point(Depthwise.x, rows_in)
        call.point(Depthwise.filters, matrix)
        call.point(Depthwise.bias, bias)
        call.point(Depthwise.out, rows)
