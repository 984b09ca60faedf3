"""Convolutions of few multiplications, and transposed ones, by a compiled task: calls of NumPy take longer than their work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.activation import ActivationKind
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter, are_floats, is_worth_a_task

from .epilogue import node_activation

__all__ = ["small_writer", "small_writer_transposed"]

MODULE = TASK = "small_convolution"
AXES = 3
MAX_WORK = 1 << 20
"""Multiplications from which products of matrices are faster, whatever they cost to call."""
MAX_SPAN = 1 << 16
"""Elements of what windows span, with padding, that are copied for them."""
_FLOAT_BYTES = 4
_X, _WEIGHT, _BIAS, _WORK = 0, 1, 2, 4


def small_writer(info: KernelInfo, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer | None:
    """A writer of activation(Conv(X, W, B)); None where the task is not faster than ``otherwise``, or cannot do it.

    Args:
        info: a Conv or FusedConv node.
        windows: of inputs of these shapes.
        inputs: X, W, B, Z; shapes and types count.
        otherwise: writes arrays that are not contiguous.
    """
    x, weight = inputs[:2]
    slope, groups = _slope(info), int(info.attribute("group", 1))
    if slope is None or (len(inputs) > 3 and inputs[3] is not None) or not _fits(inputs, groups, weight.shape[1] * groups):
        return None
    if weight.shape[0] % groups:
        return None
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
    work = x.shape[0] * weight.size * math.prod(windows.output_shape)
    return _made(sizes, geometry, steps, slope, work, x.shape[1] * math.prod(windows.extents), len(inputs), otherwise)


def small_writer_transposed(groups: int, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer | None:
    """The same of ConvTranspose(X, W, B): a convolution of X with zeros between its elements by W's taps from the last.

    Args:
        groups: of the node.
        windows: of the convolution that the node transposes.
        inputs: X, W, B.
        otherwise: see ``small_writer``.
    """
    x, weight = inputs[:2]
    if not _fits(inputs, groups, weight.shape[0]) or x.shape[1] % groups:
        return None
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
    work = x.shape[0] * weight.size * math.prod(shape)
    return _made(sizes, geometry, steps, 1.0, work, x.shape[1] * math.prod(extents), len(inputs), otherwise)


def _fits(inputs: Sequence[Any], groups: int, channels: int) -> bool:
    x, weight = inputs[:2]
    return (
        groups > 0 and 0 not in (x.size, weight.size) and 2 < x.ndim <= 2 + AXES and are_floats(inputs) and channels == x.shape[1]
    )


def _slope(info: KernelInfo) -> float | None:
    """Factor of what is below zero behind the node's convolution; None for an activation of another kind."""
    found = node_activation(info)
    if found is None or found.kind not in {ActivationKind.IDENTITY, ActivationKind.LEAKY_RELU}:
        return None
    return 1.0 if found.kind is ActivationKind.IDENTITY else float(found.alpha)


def _three(values: tuple[int, ...], first: int) -> tuple[int, ...]:
    """Numbers of three axes: those of missing ones come first."""
    return (*(first,) * (AXES - len(values)), *values)


def _made(
    sizes: tuple[int, ...],
    geometry: tuple[int, ...],
    steps: tuple[int, ...],
    slope: float,
    work: int,
    span: int,
    given: int,
    otherwise: Writer,
) -> Writer | None:
    if not 0 < work < MAX_WORK or span > MAX_SPAN or not is_worth_a_task(work, MODULE, TASK):
        return None
    return _SmallWriter((*sizes, *geometry, *steps, slope), given, otherwise, span)


class _SmallWriter(TaskWriter):
    """Keeps the memory that inputs are copied to."""

    def __init__(self, arguments: tuple[int | float, ...], given: int, otherwise: Writer, elements: int) -> None:
        places = (_X, _WEIGHT, _BIAS if given > _BIAS else None, given, None)
        super().__init__(MODULE, TASK, raw_arguments(places, arguments), otherwise)
        self._work = np.empty(elements + 16, np.float32)
        self._call.point(_WORK, self._work)
