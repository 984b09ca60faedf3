"""Softmax along an axis that others follow, as a compiled task in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for

from .arguments.softmax_axis import MODULE, SoftmaxAxis
from .select import OUTER_AXES, SoftmaxAlgorithm, SoftmaxAxisLayout, SoftmaxProblem, select_softmax, softmax_axis_layout

__all__ = ["softmax_axis_writer"]

EXPONENTIAL_WORK = 4
"""Elements of a few instructions each that one of a softmax takes as long as."""


def softmax_axis_writer(x: HostArray, out: HostArray, axis: int, otherwise: Writer) -> Writer:
    """A writer for arrays of these layouts; ``otherwise`` where the task cannot do it.

    Args:
        x: of the shape and layout to expect.
        out: the same.
        axis: from 0, not the last.
        otherwise: writes any arrays.
    """
    if not is_worth_a_task(x.size):
        return otherwise
    problem = SoftmaxProblem(x.shape, axis, False, x.strides, out.strides, are_floats([x, out]))
    algorithm = select_softmax(problem)
    if algorithm is SoftmaxAlgorithm.COPY_AND_AXIS:
        return _CopyingWriter(out, axis, otherwise)
    layout = softmax_axis_layout(problem)
    if algorithm is not SoftmaxAlgorithm.AXIS or layout is None:
        return otherwise
    return _AxisWriter(layout, x, out, axis, otherwise)


class _CopyingWriter:
    """Copies its input to the output's layout first, large ones by a task."""

    def __init__(self, out: HostArray, axis: int, otherwise: Writer) -> None:
        self._staged = np.empty_like(out)
        self._write = softmax_axis_writer(self._staged, out, axis, otherwise)
        self.algorithm = SoftmaxAlgorithm.COPY_AND_AXIS.value

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        copy_elements(self._staged, x)
        self._write(self._staged, out)


class _AxisWriter:
    def __init__(self, layout: SoftmaxAxisLayout, x: HostArray, out: HostArray, axis: int, otherwise: Writer) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        sizes = (x.shape[axis], x.strides[axis], out.strides[axis], *layout.outer[-OUTER_AXES:], layout.inner)
        strides = (*layout.x_outer_strides[-OUTER_AXES:], *layout.out_outer_strides[-OUTER_AXES:])
        threads = threads_for(EXPONENTIAL_WORK * x.size)
        self._call = TaskCall(MODULE, "softmax_axis", SoftmaxAxis.of_words((None, None, *sizes, *strides)), threads)
        self._strides, self._otherwise = (x.strides, out.strides), otherwise
        self.algorithm = SoftmaxAlgorithm.AXIS.value

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        call = self.fixed(x, out)
        if call is None:
            self._otherwise(x, out)
        else:
            call()

    def fixed(self, x: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for other layouts."""
        if (x.strides, out.strides) != self._strides:
            return None
        self._call.point(SoftmaxAxis.x, x)
        self._call.point(SoftmaxAxis.out, out)
        return self._call.kept(x, out)
