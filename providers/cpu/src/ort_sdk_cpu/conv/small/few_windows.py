"""Convolutions with few windows: GEMV-like dot products of copied windows with the rows of the weight where it is.

With as few windows, the time goes into reading the weight. So it is read once, by all windows together, and never packed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.conv.select import ConvProblem
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter, threads_for

__all__ = ["few_windows_writer"]

WORK_PER_THREAD = 1 << 18
"""Multiplications that are worth another thread: they read a mebibyte of weights."""
_X, _WEIGHT, _BIAS, _ADDED, _WORK = 0, 1, 2, 3, 5


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
    activation = problem.activation or IDENTITY
    threads = threads_for(x.shape[0] * positions * weight.size, WORK_PER_THREAD)
    sizes = (x.shape[0], x.shape[1], weight.shape[0], problem.geometry.groups)
    arguments = (*_geometry(windows), int(activation.kind), float(activation.alpha), *sizes, float(activation.beta))
    return _WindowWriter(arguments, len(inputs), otherwise, threads, positions * depth)


def _geometry(windows: Windows) -> tuple[int, ...]:
    """Each attribute for two axes: a single one is the second."""

    def both(sizes: tuple[int, ...], first: int) -> tuple[int, int]:
        return (first, *sizes)[-2:]  # type: ignore[return-value]

    return (
        *both(windows.input_shape, 1),
        *both(windows.kernel_shape, 1),
        *both(windows.output_shape, 1),
        *both(windows.strides, 1),
        *both(windows.dilations, 1),
        *both(windows.pads_begin, 0),
    )


class _WindowWriter(TaskWriter):
    """Keeps the memory that windows are copied to."""

    def __init__(self, arguments: tuple[int | float, ...], given: int, otherwise: Writer, threads: int, elements: int) -> None:
        places = (_X, _WEIGHT, *(index if index < given else None for index in (_BIAS, _ADDED)), given, None)
        super().__init__("convolution", "windows", raw_arguments(places, arguments), otherwise, threads)
        self._work = np.empty(threads * elements, np.float32)
        self._call.point(_WORK, self._work)
