"""Softmax along an axis that others follow, as a compiled task on arrays as they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.copy import copy_elements
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.memory.strides import Loops

from .arguments.softmax_axis import MODULE, SoftmaxAxis

__all__ = ["columns_writer"]

OUTER_AXES = 2
_FLOAT_BYTES = 4


def columns_writer(x: HostArray, out: HostArray, axis: int, otherwise: Writer) -> Writer:
    """A writer for arrays that lie like these; ``otherwise`` where the task cannot do it.

    Args:
        x: of the shape and layout to expect.
        out: the same.
        axis: from 0, not the last.
        otherwise: writes any arrays.
    """
    if not is_worth_a_task(x.size) or not are_floats([x, out]) or x.ndim - 1 > OUTER_AXES + 3:
        return otherwise
    others = [other for other in range(x.ndim) if other != axis]
    steps = [[array.strides[other] for other in others] for array in (x, out)]
    loops = Loops.over([x.shape[other] for other in others], steps)
    *outer, width = loops.sizes
    (*x_outer, x_inner), (*out_outer, out_inner) = loops.strides
    if x_inner != out_inner == _FLOAT_BYTES and out.flags.c_contiguous:
        return _staged_writer(out, axis, otherwise)
    is_contiguous = x_inner == out_inner == _FLOAT_BYTES
    if not is_contiguous or any(size != 1 for size in outer[:-OUTER_AXES]):
        return otherwise
    sizes = (x.shape[axis], x.strides[axis], out.strides[axis], *outer[-OUTER_AXES:], width)
    arguments = SoftmaxAxis(None, None, *sizes, *x_outer[-OUTER_AXES:], *out_outer[-OUTER_AXES:])
    return _ColumnsWriter(arguments, x, out, otherwise)


def _staged_writer(out: HostArray, axis: int, otherwise: Writer) -> Writer:
    """A writer that first copies its input to where it lies as the output does, by a task where it is large."""
    staged = np.empty_like(out)
    write = columns_writer(staged, out, axis, otherwise)

    def copy_and_write(x: HostArray, out: HostArray) -> None:
        copy_elements(staged, x)
        write(staged, out)

    return copy_and_write


class _ColumnsWriter:
    def __init__(self, arguments: SoftmaxAxis, x: HostArray, out: HostArray, otherwise: Writer) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        self._call = TaskCall(MODULE, "softmax_axis", arguments, threads_for(4 * x.size))
        self._strides = (x.strides, out.strides)
        self._otherwise = otherwise

    def __call__(self, x: HostArray, out: HostArray) -> None:
        """Write the output."""
        call = self.fixed(x, out)
        if call is None:
            self._otherwise(x, out)
        else:
            call()

    def fixed(self, x: HostArray, out: HostArray) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if they lie otherwise."""
        if (x.strides, out.strides) != self._strides:
            return None
        self._call.point(SoftmaxAxis.x, x)
        self._call.point(SoftmaxAxis.out, out)
        return self._call.kept(x, out)
