"""Convolutions with few windows by a compiled task, on weights as they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import KernelInfo
from ort_sdk.opset.nn.windows import Windows
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import TaskWriter, are_floats, is_worth_a_task
from ort_sdk_cpu.platform import libraries

from .epilogue import node_activation

__all__ = ["MAX_WINDOWS", "window_writer"]

MAX_WINDOWS = 16
"""Windows of a sample up to which a product of matrices hardly gains from its second operand being packed."""
MIN_DEPTH = 16
"""Elements of a window below which vectors are mostly empty."""
MIN_WEIGHTS = 1 << 11
"""Elements of a weight that are worth a compiled task."""
MAX_WORK_BYTES = 1 << 20
"""Of copied windows, per thread."""
WORK_PER_THREAD = 1 << 18
"""Multiplications that are worth another thread."""
_KINDS = frozenset(
    {
        ActivationKind.IDENTITY,
        ActivationKind.CLIP,
        ActivationKind.LEAKY_RELU,
        ActivationKind.SIGMOID,
        ActivationKind.TANH,
        ActivationKind.HARD_SIGMOID,
    }
)
"""What the task does to its sums."""
_X, _WEIGHT, _BIAS, _ADDED, _WORK = 0, 1, 2, 3, 5
_FLOAT_BYTES = 4


def window_writer(info: KernelInfo, windows: Windows, inputs: Sequence[Any], otherwise: Writer) -> Writer | None:
    """A writer of activation(Conv(X, W, B) + Z); None where the task is not faster than ``otherwise``, or cannot do it.

    Args:
        info: a Conv or FusedConv node.
        windows: of inputs of these shapes.
        inputs: X, W, B, Z; shapes and types count.
        otherwise: writes arrays that are not contiguous.
    """
    x, weight = inputs[:2]
    positions, depth = math.prod(windows.output_shape), math.prod(weight.shape[1:])
    is_small = 0 < positions <= MAX_WINDOWS and positions * depth * _FLOAT_BYTES <= MAX_WORK_BYTES
    is_worth = 0 not in (x.size, weight.size) and _is_worth_it(positions, depth, weight.size)
    activation = _activation(info)
    if not is_small or not is_worth or activation is None or weight.ndim not in {3, 4} or not are_floats(inputs):
        return None
    groups = int(info.attribute("group", 1))
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return None
    work = x.shape[0] * positions * weight.size
    threads = max(1, min(libraries.thread_count(), work // WORK_PER_THREAD))
    sizes = (x.shape[0], x.shape[1], weight.shape[0], groups)
    arguments = (*_geometry(windows), int(activation.kind), float(activation.alpha), *sizes, float(activation.beta))
    return _WindowWriter(arguments, len(inputs), otherwise, threads, positions * depth)


def _is_worth_it(positions: int, depth: int, elements: int) -> bool:
    """Whether the task is faster; for one window, as of gates of channels, also where it is just there, and needs no Python."""
    if not libraries.numba().is_usable:
        return False
    is_large = depth >= MIN_DEPTH and elements >= MIN_WEIGHTS
    return is_large or (positions == 1 and is_worth_a_task(1, "convolution", "windows"))


def _activation(info: KernelInfo) -> Activation | None:
    """The node's activation; None for one that the task does not have."""
    found = node_activation(info)
    return found if found is not None and found.kind in _KINDS else None


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
