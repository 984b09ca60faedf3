"""Convolutions with few windows: GEMV-like dot products of copied windows with the rows of the weight where it is.

With as few windows, the time goes into reading the weight. So it is read once, by all windows together, and never packed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.conv.arguments.few_windows import MODULE, FewWindows
from ort_sdk_cpu.conv.problem import ADDED, BIAS, ConvProblem
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.task_writer import TaskWriter, threads_for
from ort_sdk_cpu.kernel.writer import Writer

__all__ = ["few_windows_writer"]

WORK_PER_THREAD = 1 << 18
"""Multiplications that are worth another thread: they read a mebibyte of weights."""


def few_windows_writer(problem: ConvProblem, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer:
    """A writer of activation(Conv(X, W, B) + Z).

    Args:
        problem: for which ``select`` chose it.
        windows: of inputs of these shapes.
        inputs: X, W, B, Z; their shapes count.
        otherwise: writes arrays that are not contiguous.
    """
    x, weight = inputs[:2]
    positions, depth = math.prod(windows.output_shape), math.prod(weight.shape[1:])
    activation, given = problem.activation or IDENTITY, len(inputs)
    threads = threads_for(x.shape[0] * positions * weight.size, WORK_PER_THREAD)
    (height, width), (taps_down, taps_right) = _pair(windows.input_shape), _pair(windows.kernel_shape)
    (rows, columns), (step_down, step_right) = _pair(windows.output_shape), _pair(windows.strides)
    (dilation_down, dilation_right), (top, left) = _pair(windows.dilations), _pair(windows.pads_begin, 0)
    arguments = FewWindows(
        x=Operand(0),
        weights=Operand(1),
        bias=Operand(BIAS) if given > BIAS else None,
        added=Operand(ADDED) if given > ADDED else None,
        out=Operand(given),
        work=None,
        height=height,
        width=width,
        taps_down=taps_down,
        taps_right=taps_right,
        rows=rows,
        columns=columns,
        step_down=step_down,
        step_right=step_right,
        dilation_down=dilation_down,
        dilation_right=dilation_right,
        top=top,
        left=left,
        activation=int(activation.kind),
        alpha=float(activation.alpha),
        samples=x.shape[0],
        channels=x.shape[1],
        outputs=weight.shape[0],
        groups=problem.geometry.groups,
        beta=float(activation.beta),
    )
    return _WindowWriter(arguments, otherwise, threads, positions * depth)


def _pair(sizes: tuple[int, ...], first: int = 1) -> tuple[int, int]:
    """Of rows and columns: a 1-D input is one row."""
    return (first, *sizes)[-2:]  # type: ignore[return-value]


class _WindowWriter(TaskWriter):
    """Keeps the memory that windows are copied to."""

    def __init__(self, arguments: FewWindows, otherwise: Writer, threads: int, elements: int) -> None:
        super().__init__(MODULE, "few_windows", arguments, otherwise, threads)
        self._work = np.empty(threads * elements, np.float32)
        self._call.point(FewWindows.work, self._work)
