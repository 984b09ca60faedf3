"""DynamicQuantizeLSTM: by compiled tasks that quantize inputs and states, or with weights made float32 once, as LSTM's."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bound import BindableKernel, DirectlyBindable, MakeWriter, Writer, bindable, made_by
from ort_sdk_cpu.memory.workspace import scratch_of
from ort_sdk_cpu.platform import libraries

from .eager import directions_of, layer_call
from .numpy_steps import BACKWARDS
from .operators import MIN_WORK, LayerTasks, are_lengths, computed_layer, is_plain, lstm

__all__: list[str] = []

MICROSOFT = "com.microsoft"
_GATES = 4
_LSTM_INPUTS = 8
_W, _R, _BIAS, _LENGTHS, _STATES = 1, 2, 3, 4, slice(5, 7)
_SCALES = {_W: 8, _R: 10}
"""Weight → its scale; its zero point is behind it."""


@bindable("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Long short-term memory whose weights are quantized."""
    if any(info.constant_input(index) is None for index in (_W, _R, *range(8, 12))):
        return None
    usual = _quantized(info, compute) or _dequantized(info, compute)
    if usual is None:
        return None

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        return usual(inputs, outputs) if inputs[0].shape[0] else computed_layer(len(inputs), compute)

    return make


@made_by("DynamicQuantizeLSTM", domain=MICROSOFT)
def direct_layer(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The layer, in runs without a program as in those with one."""
    return DirectlyBindable(kernel, make_writer, layer_call(info, make_writer, functools.partial(_states, info)))


def _states(info: KernelInfo, inputs: Sequence[Any]) -> tuple[int, int, int] | None:
    """Shape of the states; None for shapes that do not belong together, which are another's to refuse."""
    x, w, r, b, lengths, *first = (*inputs, None, None, None)[: _STATES.stop]
    directions, hidden = directions_of(info), r.shape[1]
    states = (directions, x.shape[1] if x.ndim > 1 else 0, hidden)
    is_layer = x.ndim == 3 and x.size > 0 and w.shape == (directions, x.shape[2], _GATES * hidden)
    are_weights = is_layer and r.shape == (directions, hidden, _GATES * hidden)
    are_rows = (b is None or b.shape == (directions, 2 * _GATES * hidden)) and (lengths is None or lengths.shape == states[1:2])
    return states if are_weights and are_rows and all(each is None or each.shape == states for each in first) else None


def _quantized(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """By tasks over 8 bits; None for layers they are not for, or that are not worth compiling them."""
    is_usual = not info.attribute("input_forget", 0) and is_plain(info, ("Sigmoid", "Tanh", "Tanh"))
    if not is_usual or not libraries.numba().is_usable or math.prod(info.constants[_R].shape) < MIN_WORK:
        return None
    from .launch import LayerSizes
    from .quantized_launch import QuantizedRecurrentTask, QuantizedWeights

    if not QuantizedWeights.takes(info):
        return None
    weights, scratch = QuantizedWeights(info), scratch_of(info)
    backwards = BACKWARDS[info.attribute("direction", "forward")]

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        (steps, batch, size), hidden = inputs[0].shape, inputs[_R].shape[1]
        sizes = LayerSizes(steps, batch, size, hidden, _GATES, len(backwards), is_quantized=True)
        tasks = [QuantizedRecurrentTask("lstm_quantized", sizes, scratch, reverse=reverse) for reverse in backwards]
        return LayerTasks(tasks, len(inputs), weights, compute)

    return make


def _dequantized(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """As LSTM."""
    make_lstm = lstm(_as_lstm(info), None)
    if make_lstm is None:
        return None
    weights = functools.cache(lambda: tuple(_as_floats(info, index) for index in _SCALES))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        given = len(inputs)
        float_weights = weights()
        write = make_lstm([inputs[0], *float_weights, *inputs[3:_LSTM_INPUTS]], outputs)

        def write_with_weights(*arrays: Any) -> None:
            if not are_lengths(arrays[:given]):
                compute(*arrays[:given])  # Says what is wrong.
            write(np.ascontiguousarray(arrays[0]), *float_weights, *arrays[3:_LSTM_INPUTS], *arrays[given:])

        return write_with_weights

    return make


def _as_lstm(info: KernelInfo) -> KernelInfo:
    """The node with weights of float32, (directions, 4 * hidden, inputs)."""
    arguments = [
        None if argument is None else replace(argument, type="tensor(float)") if index in _SCALES else argument
        for index, argument in enumerate(info.inputs[:_LSTM_INPUTS])
    ]
    return replace(info, op_type="LSTM", domain="", inputs=tuple(arguments))


def _as_floats(info: KernelInfo, index: int) -> HostArray:
    scale = _SCALES[index]
    weight, factors, zero_points = (info.constant_input(place) for place in (index, scale, scale + 1))
    assert weight is not None and factors is not None and zero_points is not None  # noqa: S101, PT018 - seen to be constant
    layout = (weight.shape[0], 1, -1)
    centred = weight.astype(np.float32) - zero_points.astype(np.float32).reshape(layout)
    result: HostArray = np.ascontiguousarray((centred * factors.reshape(layout)).transpose(0, 2, 1))
    return result
