"""Convolutions of few multiplications, and transposed ones, by loops over taps: calls of NumPy take longer than the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.conv.arguments.naive import MODULE, Axes, NaiveConv
from ort_sdk_cpu.conv.problem import BIAS, ConvProblem
from ort_sdk_cpu.conv.select import NAIVE_AXES
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.task_writer import TaskWriter
from ort_sdk_cpu.kernel.writer import Writer

__all__ = ["naive_writer"]

_FLOAT_BYTES = 4


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
    taps = math.prod(windows.kernel_shape) * _FLOAT_BYTES
    output, per_group = taps * weight.shape[1], weight.shape[0] // problem.geometry.groups
    arguments = NaiveConv(
        **_operands(len(inputs)),
        samples=x.shape[0],
        channels=x.shape[1],
        outputs=weight.shape[0],
        groups=problem.geometry.groups,
        size=_axes(windows.input_shape),
        begin=_axes(windows.pads_begin, 0),
        spread=_axes(()),
        span=_axes(windows.extents),
        kernel=_axes(windows.kernel_shape),
        result=_axes(windows.output_shape),
        stride=_axes(windows.strides),
        dilation=_axes(windows.dilations),
        output_bytes=output,
        group_bytes=output * per_group,
        channel_bytes=taps,
        tap_bytes=_FLOAT_BYTES,
        first_tap_bytes=0,
        slope=_slope(problem),
    )
    return _NaiveWriter(arguments, otherwise, x.shape[1] * math.prod(windows.extents))


def _transposed_writer(problem: ConvProblem, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer:
    """A convolution of X with zeros between its elements by W's taps from the last to the first."""
    x, weight = inputs[:2]
    groups, per_group = problem.geometry.groups, weight.shape[1]
    spans = [(kernel - 1) * dilation for kernel, dilation in zip(windows.kernel_shape, windows.dilations, strict=True)]
    extents = tuple(size + span for size, span in zip(windows.input_shape, spans, strict=True))
    taps = math.prod(windows.kernel_shape) * _FLOAT_BYTES
    arguments = NaiveConv(
        **_operands(len(inputs)),
        samples=x.shape[0],
        channels=x.shape[1],
        outputs=per_group * groups,
        groups=groups,
        size=_axes(windows.output_shape),
        begin=_axes(tuple(span - begin for span, begin in zip(spans, windows.pads_begin, strict=True)), 0),
        spread=_axes(windows.strides),
        span=_axes(extents),
        kernel=_axes(windows.kernel_shape),
        result=_axes(windows.input_shape),
        stride=_axes(()),
        dilation=_axes(windows.dilations),
        output_bytes=taps,
        group_bytes=taps * per_group * (x.shape[1] // groups),
        channel_bytes=taps * per_group,
        tap_bytes=-_FLOAT_BYTES,
        first_tap_bytes=taps - _FLOAT_BYTES,
        slope=1.0,
    )
    return _NaiveWriter(arguments, otherwise, x.shape[1] * math.prod(extents))


def _slope(problem: ConvProblem) -> float:
    """Factor of what is below zero behind the convolution."""
    activation = problem.activation or IDENTITY
    return 1.0 if activation == IDENTITY else float(activation.alpha)


def _axes(values: tuple[int, ...], first: int = 1) -> Axes:
    """Numbers of three axes: those of missing ones come first."""
    depth, height, width = (*(first,) * (NAIVE_AXES - len(values)), *values)
    return Axes(depth, height, width)


def _operands(given: int) -> dict[str, Any]:
    """X, W, B if it is among so many inputs, the output, and no workspace yet."""
    bias = Operand(BIAS) if given > BIAS else None
    return {"x": Operand(0), "weights": Operand(1), "bias": bias, "out": Operand(given), "work": None}


class _NaiveWriter(TaskWriter):
    """Keeps the memory that inputs are copied to."""

    def __init__(self, arguments: NaiveConv, otherwise: Writer, elements: int) -> None:
        super().__init__(MODULE, "naive_conv", arguments, otherwise)
        self._work = np.empty(elements + 16, np.float32)
        self._call.point(NaiveConv.work, self._work)
