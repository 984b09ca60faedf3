"""DynamicQuantizeLSTM: constant weights are made float32 once, and the rest is LSTM's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo

from .bindable import MakeWriter, Writer, bindable
from .recurrent import lstm

__all__: list[str] = []

_LSTM_INPUTS = 8
_W, _R = 1, 2
_SCALES = {_W: 8, _R: 10}
"""Weight → its scale; its zero point is behind it."""


@bindable("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """Long short-term memory whose weights are quantized."""
    if any(info.constant_input(index) is None for index in (_W, _R, *range(8, 12))):
        return None
    make_lstm = lstm(_as_lstm(info), None)
    if make_lstm is None:
        return None
    weights = functools.cache(lambda: tuple(_dequantized(info, index) for index in _SCALES))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        given = len(inputs)
        float_weights = weights()
        write = make_lstm([inputs[0], *float_weights, *inputs[3:_LSTM_INPUTS]], outputs)

        def write_with_weights(*arrays: Any) -> None:
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


def _dequantized(info: KernelInfo, index: int) -> HostArray:
    scale = _SCALES[index]
    weight, factors, zero_points = (info.constant_input(place) for place in (index, scale, scale + 1))
    assert weight is not None and factors is not None and zero_points is not None  # noqa: S101, PT018 - seen to be constant
    layout = (weight.shape[0], 1, -1)
    centred = weight.astype(np.float32) - zero_points.astype(np.float32).reshape(layout)
    result: HostArray = np.ascontiguousarray((centred * factors.reshape(layout)).transpose(0, 2, 1))
    return result
