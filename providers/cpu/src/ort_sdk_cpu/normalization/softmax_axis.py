"""Softmax along an axis that others follow, as a compiled task in any layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import Writer

from .arguments.softmax_axis import MODULE, SoftmaxAxis
from .select import OUTER_AXES, SoftmaxAlgorithm, SoftmaxAxisLayout, SoftmaxProblem, select_softmax, softmax_axis_layout

__all__ = ["softmax_axis_writer"]

EXPONENTIAL_WORK = 4
"""Elements of a few instructions each that one of a softmax takes as long as."""


def softmax_axis_writer(problem: SoftmaxProblem, out: HostArray, otherwise: Writer) -> tuple[SoftmaxAlgorithm, Writer]:
    """The algorithm, and a writer for arrays of the problem's layouts; ``otherwise`` where the task cannot do it.

    Args:
        problem: along an axis that others follow.
        out: an array like the output.
        otherwise: writes any arrays.
    """
    if not is_worth_a_task(out.size):
        return SoftmaxAlgorithm.NUMPY, otherwise
    algorithm = select_softmax(problem)
    if algorithm is SoftmaxAlgorithm.COPY_AND_AXIS:
        return algorithm, _CopyingWriter(problem, out, otherwise)
    layout = softmax_axis_layout(problem)
    if algorithm is not SoftmaxAlgorithm.AXIS or layout is None:
        return SoftmaxAlgorithm.NUMPY, otherwise
    return algorithm, _AxisWriter(problem, layout, otherwise)


class _CopyingWriter:
    """Copies its input to the output's layout first, large ones by a task."""

    def __init__(self, problem: SoftmaxProblem, out: HostArray, otherwise: Writer) -> None:
        self._staged = np.empty_like(out)
        staged = SoftmaxProblem(problem.shape, problem.axis, False, self._staged.strides, out.strides, problem.is_float32)
        _, self._write = softmax_axis_writer(staged, out, otherwise)

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        copy_elements(self._staged, x)
        self._write(self._staged, out)


class _AxisWriter:
    def __init__(self, problem: SoftmaxProblem, layout: SoftmaxAxisLayout, otherwise: Writer) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        axis, elements = problem.axis, math.prod(problem.shape)
        sizes = (problem.shape[axis], problem.strides[axis], problem.out_strides[axis], *layout.outer[-OUTER_AXES:], layout.inner)
        strides = (*layout.x_outer_strides[-OUTER_AXES:], *layout.out_outer_strides[-OUTER_AXES:])
        arguments = SoftmaxAxis.of_words((None, None, *sizes, *strides))
        self._call = TaskCall(MODULE, "softmax_axis", arguments, threads_for(EXPONENTIAL_WORK * elements))
        self._strides, self._otherwise = (problem.strides, problem.out_strides), otherwise

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        call = self.bind_arrays(x, out)
        if call is None:
            self._otherwise(x, out)
        else:
            call()

    def bind_arrays(self, x: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for other layouts."""
        if (x.strides, out.strides) != self._strides:
            return None
        self._call.point(SoftmaxAxis.x, x)
        self._call.point(SoftmaxAxis.out, out)
        return self._call.bound_call(x, out)
