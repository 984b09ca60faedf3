"""LSTM, GRU and RNN step by step with NumPy: one GEMM of all inputs and their weights, then each step on kept buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform.threads import blas_matmul

__all__ = ["BACKWARDS", "stepwise"]

BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Direction of a node → whether each of its directions begins with the last step."""


class _Cell:
    """One direction's state and buffers.

    Args:
        shape: (batch, hidden).
        dtype: floating-point type.
    """

    gates = 4
    """Number of gates."""

    def __init__(self, shape: tuple[int, int], dtype: Any) -> None:
        batch, hidden = shape
        self.hidden = np.empty(shape, dtype)
        self.cell = np.empty(shape, dtype)
        self.work = np.empty(shape, dtype)
        self.sums = np.empty((batch, self.gates * hidden), dtype)
        self.parts = [self.sums[:, start : start + hidden] for start in range(0, self.gates * hidden, hidden)]

    def step(self, gates: HostArray, before: HostArray, weight: HostArray, bias: HostArray | None, after: HostArray) -> None:
        """One time step.

        Args:
            gates: the product of the step's inputs with their weights, (batch, gates * hidden).
            before: the hidden state, (batch, hidden).
            weight: (hidden, gates * hidden).
            bias: the recurrent one where it is not part of ``gates``.
            after: where the new hidden state goes; may be ``before``.
        """
        raise NotImplementedError


class _Lstm(_Cell):
    def step(self, gates: HostArray, before: HostArray, weight: HostArray, _bias: HostArray | None, after: HostArray) -> None:
        inputs, output, forget, candidate = self.parts
        blas_matmul(before, weight, self.sums)
        np.add(self.sums, gates, self.sums)
        _sigmoid(self.sums[:, : 3 * self.hidden.shape[1]])
        np.tanh(candidate, candidate)
        np.multiply(forget, self.cell, self.cell)
        np.multiply(inputs, candidate, candidate)
        np.add(self.cell, candidate, self.cell)
        np.tanh(self.cell, self.work)
        np.multiply(output, self.work, after)


class _GruResetAfter(_Cell):
    gates = 3

    def step(self, gates: HostArray, before: HostArray, weight: HostArray, bias: HostArray | None, after: HostArray) -> None:
        update, reset, candidate = self.parts
        both = 2 * self.hidden.shape[1]
        blas_matmul(before, weight, self.sums)
        if bias is not None:
            np.add(self.sums, bias, self.sums)
        np.add(self.sums[:, :both], gates[:, :both], self.sums[:, :both])
        _sigmoid(self.sums[:, :both])
        np.multiply(reset, candidate, candidate)
        np.add(candidate, gates[:, both:], candidate)
        self._mix(update, candidate, before, after)

    def _mix(self, update: HostArray, candidate: HostArray, before: HostArray, after: HostArray) -> None:
        np.tanh(candidate, candidate)
        np.subtract(before, candidate, self.work)
        np.multiply(update, self.work, self.work)
        np.add(candidate, self.work, after)


class _GruResetFirst(_GruResetAfter):
    def step(self, gates: HostArray, before: HostArray, weight: HostArray, _bias: HostArray | None, after: HostArray) -> None:
        update, reset, candidate = self.parts
        both = 2 * self.hidden.shape[1]
        blas_matmul(before, weight[:, :both], self.sums[:, :both])
        np.add(self.sums[:, :both], gates[:, :both], self.sums[:, :both])
        _sigmoid(self.sums[:, :both])
        np.multiply(reset, before, self.work)
        blas_matmul(self.work, weight[:, both:], candidate)
        np.add(candidate, gates[:, both:], candidate)
        self._mix(update, candidate, before, after)


class _Rnn(_Cell):
    gates = 1

    def step(self, gates: HostArray, before: HostArray, weight: HostArray, _bias: HostArray | None, after: HostArray) -> None:
        blas_matmul(before, weight, self.sums)
        np.add(self.sums, gates, self.sums)
        self._activate(self.sums, after)

    def _activate(self, sums: HostArray, after: HostArray) -> None:
        np.tanh(sums, after)


class _RnnRelu(_Rnn):
    def _activate(self, sums: HostArray, after: HostArray) -> None:
        np.maximum(sums, 0, after)


_CELLS = {"lstm": _Lstm, "gru": _GruResetAfter, "gru_reset_first": _GruResetFirst, "rnn": _Rnn, "rnn_relu": _RnnRelu}


def stepwise(name: str, shape: tuple[int, int], dtype: Any, direction: str, workspace: Workspace) -> Callable[..., None]:
    """``write(number of inputs, *inputs, *outputs)``.

    Args:
        name: ``lstm``, ``gru`` (which resets after the product), ``gru_reset_first``, ``rnn`` or ``rnn_relu``.
        shape: (batch, hidden).
        dtype: floating-point type.
        direction: of the node.
        workspace: the workspace.
    """
    cell, folded = _CELLS[name](shape, dtype), name != "gru"

    def write(given: int, *arrays: Any) -> None:
        x, w, r, b, lengths, initial_h, initial_c = (*arrays[:given], None, None, None, None)[:7]
        sequence, *states = (*arrays[given:], None, None)[:3]
        outside = _outside(lengths, x)
        for index, reverse in enumerate(BACKWARDS[direction]):
            bias, rows = None if b is None else b[index], w.shape[1]
            gates = _input_gates(x, w[index], bias, workspace, folded=folded)
            _start(cell, initial_h, initial_c, index)
            recurrent = (r[index].T, None if bias is None else bias[rows:])
            steps = None if sequence is None else sequence[:, index]
            last = _run(cell, gates, recurrent, steps, outside, reverse=reverse)
            for target, value in zip(states, (last, cell.cell), strict=True):
                if target is not None:
                    np.copyto(target[index], value if outside is None else np.where(outside[0], 0, value))
            if outside is not None and steps is not None:
                np.copyto(steps, 0, where=outside)

    return write


def _sigmoid(x: HostArray) -> None:
    np.multiply(x, 0.5, x)
    np.tanh(x, x)
    np.multiply(x, 0.5, x)
    np.add(x, 0.5, x)


def _input_gates(
    x: HostArray,
    weight: HostArray,
    bias: HostArray | None,
    workspace: Workspace,
    *,
    folded: bool,
) -> HostArray:
    """Products of inputs with their weights, (time, batch, gates * hidden), in the workspace."""
    time, batch, size = x.shape
    rows = weight.shape[0]
    gates = workspace.array("gates", (time * batch, rows), x.dtype)
    blas_matmul(x.reshape(time * batch, size), weight.T, gates)
    if bias is not None:
        np.add(gates, bias[:rows] + bias[rows:] if folded else bias[:rows], gates)
    return gates.reshape(time, batch, rows)


def _start(cell: _Cell, initial_h: HostArray | None, initial_c: HostArray | None, index: int) -> None:
    for state, given in ((cell.hidden, initial_h), (cell.cell, initial_c)):
        np.copyto(state, 0 if given is None else given[index])


def _outside(lengths: HostArray | None, x: HostArray) -> HostArray | None:
    """Which steps do not belong to a sample's sequence: (time, batch, 1); None if all do."""
    if lengths is None or bool((lengths == len(x)).all()):
        return None
    found: HostArray = (np.arange(len(x))[:, None] >= lengths)[:, :, None]
    return found


def _run(
    cell: _Cell,
    gates: HostArray,
    recurrent: tuple[HostArray, HostArray | None],
    sequence: HostArray | None,
    outside: HostArray | None,
    *,
    reverse: bool,
) -> HostArray:
    """All time steps; returns the last hidden state, a view of the sequence if that is wanted.

    Steps that do not belong to a sample's sequence leave its state, also in the sequence.
    """
    hidden, (weight, bias) = cell.hidden, recurrent
    times = range(gates.shape[0])
    for time in reversed(times) if reverse else times:
        after = cell.hidden if sequence is None else sequence[time]
        kept = () if outside is None else (hidden.copy(), cell.cell.copy())
        cell.step(gates[time], hidden, weight, bias, after)
        hidden = after
        for state, old in zip((hidden, cell.cell), kept, strict=False):
            np.copyto(state, old, where=outside[time])  # type: ignore[index]
    return hidden
