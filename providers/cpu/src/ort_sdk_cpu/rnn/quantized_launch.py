"""Directions of LSTM layers with weights of int8 by compiled tasks, which quantize inputs and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.memory.workspace import Workspace

from .arguments.layer import Layer
from .arguments.layer_int8 import MODULE, QuantizedLstm
from .launch import LSTM_GATES, RecurrentTask
from .packing import BIAS, RECURRENT, UNITS, WEIGHT, DirectionWeights

__all__ = ["QuantizedRecurrentTask", "QuantizedWeights"]

_SCALES = {WEIGHT: 8, RECURRENT: 10}
"""Input with a weight → input with its scale; its zero point is the next."""
K_STEP = 4
"""Elements along K that one dot-product instruction (VNNI's vpdpbusd) adds up."""
_FLOAT_BYTES = 4
_HALF_RANGE = 128


@dataclass(frozen=True, slots=True)
class _Direction(DirectionWeights):
    """Weights of one direction: ``w`` is panels, too."""

    input_columns: HostArray
    """Sums and scales of the columns of each panel of ``w``, (panels, 2, 4, 16): int32, and the bits of float32."""
    state_columns: HostArray


class QuantizedWeights:
    """Constant weights of a DynamicQuantizeLSTM, packed when they are first needed.

    Args:
        info: the node.
    """

    are_constant = True

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._kept: Sequence[DirectionWeights] = ()

    @staticmethod
    def takes(info: KernelInfo) -> bool:
        """Whether weights are constants without zero points, or of uint8 with those in the middle, and so is the bias, if any."""
        indices = [each for index, scale in _SCALES.items() for each in (index, scale, scale + 1)]
        if any(info.constant_input(index) is None for index in indices) or (info.has_input(BIAS) and BIAS not in info.constants):
            return False
        return all(np.all(info.constant_input(scale + 1) == _middle(info, index)) for index, scale in _SCALES.items())

    def of(self, *_inputs: Any) -> Sequence[DirectionWeights]:
        """The weights of all directions; always the same."""
        if not self._kept:
            (w, w_columns), (r, r_columns) = (self._panels(index) for index in _SCALES)
            bias = self._info.constant_input(BIAS) if self._info.has_input(BIAS) else None
            biases = [None] * len(w) if bias is None else np.ascontiguousarray(bias)
            self._kept = [_Direction(*each) for each in zip(w, r, biases, w_columns, r_columns, strict=True)]
        return self._kept

    def _panels(self, index: int) -> tuple[HostArray, HostArray]:
        """Panels of a weight (directions, K, 4 * hidden): (directions, panels, K / 4, gates, 16, 4); and their columns."""
        weight, scales = self._info.constant_input(index), self._info.constant_input(_SCALES[index])
        assert weight is not None and scales is not None  # noqa: S101, PT018 - seen to be constant
        directions, inner, columns = weight.shape
        hidden = columns // LSTM_GATES
        units, steps = -(-hidden // UNITS), -(-inner // K_STEP)
        signed = (weight ^ np.uint8(_HALF_RANGE)).view(np.int8) if weight.dtype == np.uint8 else weight
        padded = np.zeros((directions, steps * K_STEP, LSTM_GATES, units * UNITS), np.int8)
        padded[:, :inner, :, :hidden] = signed.reshape(directions, inner, LSTM_GATES, hidden)
        panels = padded.reshape(directions, steps, K_STEP, LSTM_GATES, units, UNITS).transpose(0, 4, 1, 3, 5, 2)
        factors = np.zeros((directions, LSTM_GATES, units * UNITS), np.float32)
        factors[:, :, :hidden] = np.broadcast_to(scales.reshape(directions, 1, -1), (directions, 1, columns)).reshape(
            directions, LSTM_GATES, hidden
        )
        found = np.empty((directions, units, 2, LSTM_GATES, UNITS), np.int32)
        for row, numbers in enumerate((padded.sum(axis=1, dtype=np.int32), factors.view(np.int32))):
            found[:, :, row] = numbers.reshape(directions, LSTM_GATES, units, UNITS).swapaxes(1, 2)
        return np.ascontiguousarray(panels), found


def _middle(info: KernelInfo, index: int) -> int:
    """The zero point of a weight's type."""
    weight = info.constant_input(index)
    return _HALF_RANGE if weight is not None and weight.dtype == np.uint8 else 0


def _row_bytes(size: int) -> int:
    return -(-size // K_STEP) * K_STEP


class QuantizedRecurrentTask(RecurrentTask):
    """One direction of a layer. For one thread at a time. Arguments as for ``RecurrentTask``."""

    def _input_product(self, _workspace: Workspace) -> GemmCall | None:
        return None

    def _more_memory(self, threads: int) -> Mapping[str, tuple[int, ...]]:
        sizes = self._sizes
        inputs = (sizes.steps * sizes.batch, _row_bytes(sizes.inputs) // _FLOAT_BYTES)
        return {"inputs": inputs, "quantized": (threads, self._state_bytes() // _FLOAT_BYTES)}

    def _task(self, name: str, *, is_int24: bool) -> tuple[str, type[Layer]]:
        return MODULE, QuantizedLstm

    def _more_numbers(self) -> Mapping[str, int]:
        rows = {"input_row": _row_bytes(self._sizes.inputs), "state_row": _row_bytes(self._sizes.hidden)}
        return rows | {"thread_state_bytes": self._state_bytes()}

    def _state_bytes(self) -> int:
        return self._sizes.batch * _row_bytes(self._sizes.hidden)

    def use_weights(self, weights: DirectionWeights) -> None:
        """Read these from now on; they are kept."""
        super().use_weights(weights)
        assert isinstance(weights, _Direction)  # noqa: S101 - QuantizedWeights gives no others
        self.call.point(QuantizedLstm.recurrent_columns, weights.state_columns)
        self.call.point(QuantizedLstm.input_columns, weights.input_columns)

    def _point(self, *arrays: Any) -> None:
        super()._point(*arrays)
        self.call.point(QuantizedLstm.quantized_inputs, self._working.array("inputs"))
        self.call.point(QuantizedLstm.quantized_states, self._working.array("quantized"))
