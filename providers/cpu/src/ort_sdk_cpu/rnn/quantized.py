"""DynamicQuantizeLSTM: by compiled tasks that quantize inputs and states, or with weights made float32 once, as LSTM's."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bindable import BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .eager import directions_of, layer_call
from .numpy_steps import BACKWARDS
from .operators import LayerTasks, are_lengths, computed_layer, is_plain, lstm
from .select import MIN_WORK, LayerSizes, RecurrentAlgorithm

if TYPE_CHECKING:
    from .quantized_launch import QuantizedWeights

__all__: list[str] = []

MICROSOFT = "com.microsoft"
_GATES = 4
_LSTM_INPUTS = 8
_W, _R, _BIAS, _LENGTHS, _STATES = 1, 2, 3, 4, slice(5, 7)
_SCALES = {_W: 8, _R: 10}
"""Input with a weight → input with its scale; its zero point is the next."""


@bindable("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Long short-term memory whose weights are quantized."""
    if any(info.constant_input(index) is None for index in (_W, _R, *range(8, 12))):
        return None
    usual = _quantized(info) or _dequantized(info)
    return None if usual is None else _Writers(usual, compute)


class _Writers:
    """Makes a node's writers.

    Args:
        usual: makes those for sequences of steps.
        compute: the shared set's function, for those of none, and for what is wrong.
    """

    def __init__(self, usual: _Quantized | _Dequantized, compute: Any) -> None:
        self._usual, self._compute = usual, compute
        self.algorithm: str | None = None
        """Of the writer made last."""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """A writer for arrays of these shapes and types."""
        if not inputs[0].shape[0]:
            self.algorithm = RecurrentAlgorithm.OPSET
            return computed_layer(len(inputs), self._compute)
        write = self._usual(inputs, outputs, self._compute)
        self.algorithm = self._usual.algorithm
        return write


@kernel_maker("DynamicQuantizeLSTM", domain=MICROSOFT)
def direct_layer(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The layer, in runs without a program as in those with one."""
    return DirectBindableKernel(kernel, make_writer, layer_call(info, make_writer, functools.partial(_states, info)))


def _states(info: KernelInfo, inputs: Sequence[Any]) -> tuple[int, int, int] | None:
    """Shape of the states; None for shapes that do not belong together, which are another's to refuse."""
    x, w, r, b, lengths, *first = (*inputs, None, None, None)[: _STATES.stop]
    directions, hidden = directions_of(info), r.shape[1]
    states = (directions, x.shape[1] if x.ndim > 1 else 0, hidden)
    is_layer = x.ndim == 3 and x.size > 0 and w.shape == (directions, x.shape[2], _GATES * hidden)
    are_weights = is_layer and r.shape == (directions, hidden, _GATES * hidden)
    are_rows = (b is None or b.shape == (directions, 2 * _GATES * hidden)) and (lengths is None or lengths.shape == states[1:2])
    return states if are_weights and are_rows and all(each is None or each.shape == states for each in first) else None


def _quantized(info: KernelInfo) -> _Quantized | None:
    """None for layers that tasks over 8 bits are not for, or that are not worth compiling them."""
    is_usual = not info.attribute("input_forget", 0) and is_plain(info, ("Sigmoid", "Tanh", "Tanh"))
    if not is_usual or not libraries.compiled_kernels().is_usable or math.prod(info.constants[_R].shape) < MIN_WORK:
        return None
    from .quantized_launch import QuantizedWeights

    return _Quantized(info, QuantizedWeights(info)) if QuantizedWeights.takes(info) else None


class _Quantized:
    """By tasks over 8 bits."""

    algorithm = RecurrentAlgorithm.PANELS_INT8

    def __init__(self, info: KernelInfo, weights: QuantizedWeights) -> None:
        self._weights, self._workspace = weights, workspace_of(info)
        self._backwards = BACKWARDS[info.attribute("direction", "forward")]

    def __call__(self, inputs: Sequence[Any], _outputs: Sequence[HostArray], compute: Any) -> Writer:
        from .quantized_launch import QuantizedRecurrentTask

        (steps, batch, size), hidden = inputs[0].shape, inputs[_R].shape[1]
        sizes = LayerSizes(steps, batch, size, hidden, _GATES, len(self._backwards), is_quantized=True)
        tasks = [QuantizedRecurrentTask("lstm_quantized", sizes, self._workspace, reverse=reverse) for reverse in self._backwards]
        return LayerTasks(tasks, len(inputs), self._weights, compute)


def _dequantized(info: KernelInfo) -> _Dequantized | None:
    """None for layers that LSTM's writers are not for."""
    make_lstm = lstm(_as_lstm(info), None)
    return None if make_lstm is None else _Dequantized(info, make_lstm)


class _Dequantized:
    """As LSTM, over weights of float32 that are made once."""

    def __init__(self, info: KernelInfo, make_lstm: Any) -> None:
        self._make_lstm = make_lstm
        self._weights = functools.cache(lambda: tuple(_as_floats(info, index) for index in _SCALES))

    @property
    def algorithm(self) -> str | None:
        """Of the writer made last."""
        name: str | None = self._make_lstm.algorithm
        return name

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[HostArray], compute: Any) -> Writer:
        given, weights = len(inputs), self._weights()
        write = self._make_lstm([inputs[0], *weights, *inputs[3:_LSTM_INPUTS]], outputs)

        def write_with_weights(*arrays: Any) -> None:
            if not are_lengths(arrays[:given]):
                compute(*arrays[:given])  # Says what is wrong.
            write(np.ascontiguousarray(arrays[0]), *weights, *arrays[3:_LSTM_INPUTS], *arrays[given:])

        return write_with_weights


def _as_lstm(info: KernelInfo) -> KernelInfo:
    """The node with weights of float32, (directions, 4 * hidden, inputs)."""
    arguments = [
        None if argument is None else replace(argument, type="tensor(float)") if index in _SCALES else argument
        for index, argument in enumerate(info.inputs[:_LSTM_INPUTS])
    ]
    return replace(info, op_type="LSTM", domain="", inputs=tuple(arguments))


def _as_floats(info: KernelInfo, index: int) -> HostArray:
    scale = _SCALES[index]
    weight, factors, zero_points = (info.constant_input(each) for each in (index, scale, scale + 1))
    assert weight is not None and factors is not None and zero_points is not None  # noqa: S101, PT018 - seen to be constant
    layout = (weight.shape[0], 1, -1)
    centred = weight.astype(np.float32) - zero_points.astype(np.float32).reshape(layout)
    result: HostArray = np.ascontiguousarray((centred * factors.reshape(layout)).transpose(0, 2, 1))
    return result
