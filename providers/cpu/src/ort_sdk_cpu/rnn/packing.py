"""Packed weights of recurrent layers: recurrent ones (R) as panels, in the order in which a step reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OrtMemoryInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.memory.allocator import CpuAllocator

from .packing_int24 import UNITS, int24_panel_bytes, packed_int24, unpacked_int24
from .select import is_worth_int24

__all__ = ["BIAS", "RECURRENT", "UNITS", "WEIGHT", "DirectionWeights", "LayerWeights", "panels_of"]

WEIGHT, RECURRENT, BIAS = 1, 2, 3
"""Inputs of LSTM, GRU and RNN."""
_GATES_TOGETHER = {"lstm": (4,), "gru": (3,), "gru_reset_first": (2, 1), "rnn": (1,), "rnn_relu": (1,)}
"""Task → gates of a panel, which share a pass. A GRU that resets first needs all reset gates before the candidate."""
_FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class DirectionWeights:
    """Weights of one direction."""

    w: HostArray
    """(gates * hidden, inputs), contiguous; or its bytes, at any address."""
    panels: HostArray
    """The recurrent ones as :func:`panels_of` gives them, or as ``packed_int24`` does."""
    b: HostArray | None
    """(2 * gates * hidden,), the input's bias and the state's; None for none."""


class LayerWeights:
    """Weights of a node; what is made of them is kept if they are constant.

    Args:
        info: the node.
        name: of the task that computes a direction.
    """

    def __init__(self, info: KernelInfo, name: str) -> None:
        self._name = name
        self._shapes = {index: tuple(info.constants[index].shape) for index in (WEIGHT, RECURRENT) if index in info.constants}
        self.are_constant = all(index in info.constants for index in (WEIGHT, RECURRENT, BIAS) if info.has_input(index))
        self._packed: dict[int, HostArray] = {}
        self._is_int24 = False
        self._kept: Sequence[DirectionWeights] | None = None

    @property
    def are_packed(self) -> bool:
        """Whether the host has packed them, and gives None for them."""
        return bool(self._packed)

    @property
    def are_whole(self) -> bool:
        """Whether constant weights are matrices of whole gates, of units of one number."""
        gates = sum(_GATES_TOGETHER[self._name])
        w, r = self._shapes[WEIGHT], self._shapes[RECURRENT]
        return len(w) == len(r) == 3 and w[:2] == r[:2] and r[1] == gates * r[2]

    @property
    def form(self) -> str:
        """What R is packed as; text for the identity of what is packed."""
        is_worth_it = is_worth_int24(self._shapes[RECURRENT], _GATES_TOGETHER[self._name])
        return f"panels-{UNITS}" + ("-of-24-bits-if-spread-allows" if is_worth_it else "")

    def is_int24(self, r: HostArray | None) -> bool:
        """Whether panels are of 24 bits, with R as given to the node."""
        return r is None and self._is_int24

    def shape_of(self, index: int, inputs: Sequence[Any]) -> tuple[int, ...]:
        """Shape of an input, constant or given."""
        return self._shapes[index] if inputs[index] is None else inputs[index].shape

    def packed(self, index: int, content: HostArray) -> HostArray:
        """What is kept of an input's bytes, uint8: W as it is, and panels of R."""
        if index == WEIGHT:
            return content
        shape, together = self._shapes[index], _GATES_TOGETHER[self._name]
        panels = panels_of(content.view(_FLOAT).reshape(shape), self._name)
        packed = packed_int24(panels, shape[-1], together) if is_worth_int24(shape, together) else None
        found: HostArray = (panels if packed is None else packed).reshape(-1).view(np.uint8)
        return found

    def use_packed(self, index: int, content: HostArray) -> None:
        """Read an input from what ``packed`` gave."""
        self._packed[index] = content
        if index == RECURRENT:
            directions, _, hidden = self._shapes[index]
            size = sum(int24_panel_bytes(hidden, gates) for gates in _GATES_TOGETHER[self._name])
            self._is_int24 = content.nbytes == directions * -(-hidden // UNITS) * size

    def of(self, w: HostArray | None, r: HostArray | None, b: HostArray | None) -> Sequence[DirectionWeights]:
        """The weights of all directions, given as the node's inputs, None where they are packed; the same if nothing changed."""
        if self._kept is not None:
            return self._kept
        first = np.ascontiguousarray(w) if w is not None else self._packed[WEIGHT].reshape(self._shapes[WEIGHT][0], -1)
        panels = panels_of(r, self._name) if r is not None else self._packed[RECURRENT].reshape(len(first), -1)
        biases = [None] * len(first) if b is None else np.ascontiguousarray(b)
        made = [DirectionWeights(*each) for each in zip(first, panels, biases, strict=True)]
        if self.are_constant:
            self._kept = made
        return made

    def plain(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with the weights as the node has them."""
        if not self._packed:
            return inputs
        w, panels = self._packed[WEIGHT].view(_FLOAT), self._panels()
        weights = (w.reshape(self._shapes[WEIGHT]), _unpacked(panels, self._shapes[RECURRENT], self._name))
        return [inputs[0], *weights, *inputs[BIAS:]]

    def _panels(self) -> HostArray:
        """R as panels of float32."""
        content, (directions, _, hidden) = self._packed[RECURRENT], self._shapes[RECURRENT]
        return (
            unpacked_int24(content, directions, hidden, _GATES_TOGETHER[self._name]) if self._is_int24 else content.view(_FLOAT)
        )


def panels_of(recurrent: HostArray, name: str) -> HostArray:
    """Recurrent weights as panels.

    Args:
        recurrent: float32, (directions, gates * hidden, hidden).
        name: the task's.

    Returns:
        (directions, elements of one) at a multiple of 64 bytes: for all gates that are computed together, for each 16 units,
        (hidden, gates, 16); units after the last are 0.
    """
    directions, rows, hidden = recurrent.shape
    size = rows * -(-hidden // UNITS) * UNITS
    found: HostArray = CpuAllocator(OrtMemoryInfo()).allocate((directions, size), TensorElementType.FLOAT)
    for source, target in zip(recurrent, found, strict=True):
        for units, panel in _pairs(source.reshape(-1, hidden, hidden), target, name):
            panel[:, :, : units.shape[1]] = units.transpose(2, 0, 1)
            panel[:, :, units.shape[1] :] = 0
    return found


def _unpacked(panels: HostArray, shape: tuple[int, ...], name: str) -> HostArray:
    """The inverse."""
    found = np.empty(shape, _FLOAT)
    for target, source in zip(found, panels.reshape(len(found), -1), strict=True):
        for units, panel in _pairs(target.reshape(-1, shape[-1], shape[-1]), source, name):
            units[...] = panel[:, :, : units.shape[1]].transpose(1, 2, 0)
    return found


def _pairs(by_gate: HostArray, panels: HostArray, name: str) -> list[tuple[HostArray, HostArray]]:
    """((gates, units, hidden), (hidden, gates, 16)) for each panel: views of both forms of a direction's weights."""
    found, hidden, first = [], by_gate.shape[-1], 0
    count = -(-hidden // UNITS)
    for gates in _GATES_TOGETHER[name]:
        start, size = first * count * UNITS * hidden, gates * count * UNITS * hidden
        group = panels[start : start + size].reshape(count, hidden, gates, UNITS)
        for index, panel in enumerate(group):
            found.append((by_gate[first : first + gates, index * UNITS : (index + 1) * UNITS], panel))
        first += gates
    return found
