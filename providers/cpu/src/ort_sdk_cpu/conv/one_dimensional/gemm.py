"""Convolutions along one axis by GEMM: the rows are windows of NHWC data, which overlap in memory, so that none is copied."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.conv.geometry import AxisWindows
from ort_sdk_cpu.conv.problem import ConvAlgorithm, ConvProblem
from ort_sdk_cpu.conv.specialized import FLOAT, MAX_1D_BYTES, TEAM_WORK, SpecializedConvKernel
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.layouts.memory import is_nhwc
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["Gemm1dKernel"]

MAX_SAMPLES = 32
"""Samples for which a bound call is made of calls that need no Python, one for each."""


class Gemm1dKernel(SpecializedConvKernel):
    """Y[n, m, t] = activation(bias[m] + sum over c, k of X[n, c, t * stride + k - begin] * W[m, c, k]).

    With channels last, windows are the rows of a matrix whose rows overlap, and so are results: no im2row is needed. Arguments
    as for ``SpecializedConvKernel``.
    """

    own_algorithm = ConvAlgorithm.GEMM_1D

    def __init__(self, info: KernelInfo, make_general: Callable[[], Any], problem: ConvProblem) -> None:
        super().__init__(info, make_general, problem)
        windows = AxisWindows.of(problem.geometry, self._shape, problem.x_shape)
        assert windows is not None  # noqa: S101 - it was chosen for the problem
        self._windows, self._activation = windows, problem.activation or IDENTITY

    def _takes(self, x: HostArray) -> bool:
        if x.dtype != FLOAT or x.ndim not in {3, 4} or not x.size or not self._is_own(x.shape):
            return False
        if x.ndim == 3 and x.shape[1] > 1 and not is_nhwc(x):
            return False  # The general kernel transposes it faster; it is slow where a further axis makes it an image.
        return self._windows.count(x.shape[2 + self._windows.axis]) > 0

    def _is_own(self, x_shape: tuple[int, ...]) -> bool:
        return self._windows.are_over(x_shape)

    def _new_output(self, x: HostArray) -> HostArray:
        windows, shape = self._windows, [x.shape[0], *x.shape[2:], self._windows.outputs]
        shape[windows.axis + 1] = windows.count(x.shape[2 + windows.axis])
        if windows.covered is not None:
            shape[windows.covered + 1] = 1
        return np.moveaxis(np.empty(shape, FLOAT), -1, 1)

    def _output(self, out: HostArray) -> HostArray:
        """(N, M, *spatial) as (N, windows, M)."""
        return np.moveaxis(out, 1, -1).reshape(out.shape[0], -1, out.shape[1])

    def _launch(self, x: HostArray) -> _OverlappingRows:
        return _OverlappingRows(x.shape[2 + self._windows.axis], self._windows, self._activation, self._workspace)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(taps * C, M)."""
        windows = self._windows
        by_tap = _by_step(weight, (windows.outputs,), windows).transpose(1, 2, 0)
        return np.ascontiguousarray(by_tap).reshape(-1, windows.outputs)


class _OverlappingRows:
    """GEMMs of the windows of each sample. For one thread at a time.

    Args:
        length: of the axis along which windows follow each other.
        windows: the node's.
        activation: what follows the GEMM.
        workspace: the workspace.
    """

    def __init__(self, length: int, windows: AxisWindows, activation: Activation, workspace: Workspace) -> None:
        self._length, self._channels, self._windows, self._workspace = length, windows.channels, windows, workspace
        self._outputs, self._activation = windows.outputs, activation
        self._is_single = windows.outputs == 1 and activation == IDENTITY
        self._gemm = self._made()

    def _made(self) -> GemmCall:
        count, inner = self._windows.count(self._length), self._windows.taps * self._channels
        step = self._windows.stride * self._channels * FLOAT.itemsize
        most_threads = 1 if count * inner * self._outputs < TEAM_WORK else None
        if self._is_single:
            sizes = GemmProblem(1, inner, count, trans_b=True)
            return GemmCall(sizes, self._workspace, ldb=step, most_threads=most_threads)
        return GemmCall(
            GemmProblem(count, inner, self._outputs),
            self._workspace,
            activation=self._activation,
            lda=step,
            most_threads=most_threads,
        )

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        """Write (N, windows, M); one output channel is one row of dot products, each of which has the bias as its addend."""
        for sample, out in zip(x, rows, strict=True):
            steps = self._channels_last(sample)
            if self._is_single:
                self._gemm(matrix, steps, None, out)
            else:
                self._gemm(steps, matrix, bias, out)
        if self._is_single and bias is not None:
            np.add(rows, bias, rows)

    def bind_arrays(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; short inputs have memory of their own for the zeros around them."""
        shape = (self._windows.begin + self._length + self._windows.end, self._channels)
        is_short = len(x) <= MAX_SAMPLES and math.prod(shape) * FLOAT.itemsize <= MAX_1D_BYTES
        if not is_short or (self._is_single and bias is not None):
            return functools.partial(self, x, matrix, bias, rows)
        padded = np.zeros(shape, FLOAT)
        pairs = zip(x, rows, strict=True)
        return in_sequence([call for sample, out in pairs for call in self._calls(sample, matrix, bias, out, padded)])

    def _calls(
        self, sample: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray, padded: HostArray
    ) -> Iterator[Callable[[], Any]]:
        """The calls for one sample."""
        steps, read = self._steps_of(sample), padded
        if self._is_ready(steps):
            read = steps
        else:
            inner = padded[self._windows.begin : self._windows.begin + self._length]
            yield CopyWriter(lambda: [(inner, steps)]).bind_arrays()
        operands = (matrix, read, None) if self._is_single else (read, matrix, bias)
        yield self._made().bind_arrays(*operands, out)

    def _steps_of(self, sample: HostArray) -> HostArray:
        """(C, *spatial) as (length, C): a view."""
        return _by_step(sample, (), self._windows)

    def _is_ready(self, steps: HostArray) -> bool:
        """Whether windows can be read without a copy."""
        return not self._windows.begin and not self._windows.end and steps.flags.c_contiguous

    def _channels_last(self, sample: HostArray) -> HostArray:
        """(C, *spatial) as (length, C), with zeros around it."""
        begin, end = self._windows.begin, self._windows.end
        steps = self._steps_of(sample)
        if self._is_ready(steps):
            return steps
        padded = self._workspace.array("steps", (begin + self._length + end, self._channels), FLOAT)
        padded[:begin] = padded[begin + self._length :] = 0
        padded[begin : begin + self._length] = steps
        return padded


def _by_step(array: HostArray, leading: tuple[int, ...], windows: AxisWindows) -> HostArray:
    """(*leading, C, *spatial) as (*leading, steps along the windows, C): a view, as all other axes have one element."""
    if windows.covered is not None and windows.covered > windows.axis:
        return array.reshape(*leading, -1, windows.channels)
    return array.reshape(*leading, windows.channels, -1).swapaxes(-1, -2)
