"""Convolutions of few multiplications, and transposed ones, by loops over taps: calls of NumPy take longer than the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.conv.select import NAIVE_AXES, ConvProblem
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter

__all__ = ["naive_writer"]

MODULE = TASK = "small_convolution"
_FLOAT_BYTES = 4
_X, _WEIGHT, _BIAS, _WORK = 0, 1, 2, 4


def naive_writer(problem: ConvProblem, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer:
    """A writer of activation(Conv(X, W, B)), or of ConvTranspose(X, W, B).

    Args:
        problem: for which ``select`` chose it.
        windows: of inputs of these shapes; of ConvTranspose, those of the convolution that it transposes.
        inputs: X, W, B, Z; their shapes count.
        otherwise: writes arrays that are not contiguous.
    """
    write = _transposed_writer if problem.is_transposed else _writer
    return write(problem, windows, inputs, otherwise)


def _writer(problem: ConvProblem, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer:
    x, weight = inputs[:2]
    slope, groups = _slope(problem), problem.geometry.groups
    taps = math.prod(windows.kernel_shape) * _FLOAT_BYTES
    output, per_group = taps * weight.shape[1], weight.shape[0] // groups
    geometry = (
        *_three(windows.input_shape, 1),
        *_three(windows.pads_begin, 0),
        *_three((), 1),
        *_three(windows.extents, 1),
        *_three(windows.kernel_shape, 1),
        *_three(windows.output_shape, 1),
        *_three(windows.strides, 1),
        *_three(windows.dilations, 1),
    )
    sizes = (x.shape[0], x.shape[1], weight.shape[0], groups)
    steps = (output, output * per_group, taps, _FLOAT_BYTES, 0)
    arguments = (*sizes, *geometry, *steps, slope)
    return _NaiveWriter(arguments, len(inputs), otherwise, x.shape[1] * math.prod(windows.extents))


def _transposed_writer(problem: ConvProblem, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer:
    """A convolution of X with zeros between its elements by W's taps from the last to the first."""
    x, weight = inputs[:2]
    groups = problem.geometry.groups
    shape, rank = windows.input_shape, len(windows.input_shape)
    spans = [(kernel - 1) * dilation for kernel, dilation in zip(windows.kernel_shape, windows.dilations, strict=True)]
    extents = tuple(size + span for size, span in zip(shape, spans, strict=True))
    geometry = (
        *_three(windows.output_shape, 1),
        *_three(tuple(span - begin for span, begin in zip(spans, windows.pads_begin, strict=True)), 0),
        *_three(windows.strides, 1),
        *_three(extents, 1),
        *_three(windows.kernel_shape, 1),
        *_three(shape, 1),
        *_three((1,) * rank, 1),
        *_three(windows.dilations, 1),
    )
    per_group = weight.shape[1]
    taps = math.prod(windows.kernel_shape) * _FLOAT_BYTES
    sizes = (x.shape[0], x.shape[1], per_group * groups, groups)
    steps = (taps, taps * per_group * (x.shape[1] // groups), taps * per_group, -_FLOAT_BYTES, taps - _FLOAT_BYTES)
    arguments = (*sizes, *geometry, *steps, 1.0)
    return _NaiveWriter(arguments, len(inputs), otherwise, x.shape[1] * math.prod(extents))


def _slope(problem: ConvProblem) -> float:
    """Factor of what is below zero behind the convolution."""
    activation = problem.activation or IDENTITY
    return 1.0 if activation == IDENTITY else float(activation.alpha)


def _three(values: tuple[int, ...], first: int) -> tuple[int, ...]:
    """Numbers of three axes: those of missing ones come first."""
    return (*(first,) * (NAIVE_AXES - len(values)), *values)


class _NaiveWriter(TaskWriter):
    """Keeps the memory that inputs are copied to."""

    def __init__(self, arguments: tuple[int | float, ...], given: int, otherwise: Writer, elements: int) -> None:
        places = (_X, _WEIGHT, _BIAS if given > _BIAS else None, given, None)
        super().__init__(MODULE, TASK, raw_arguments(places, arguments), otherwise)
        self._work = np.empty(elements + 16, np.float32)
        self._call.point(_WORK, self._work)
