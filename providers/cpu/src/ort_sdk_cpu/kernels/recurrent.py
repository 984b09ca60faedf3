"""LSTM and GRU: the input's share of all gates in one product, then each time step in place on kept buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu import libraries

from .bindable import MakeWriter, Writer, bindable
from .scratch import Scratch, scratch_of
from .task_writer import are_floats

if TYPE_CHECKING:
    from .recurrent_task import InputProduct, RecurrentTask

__all__: list[str] = []

MIN_WORK = 1 << 14
"""Weights times steps from which a compiled task is worth loading."""
MAX_BATCH = 4
"""Rows from which a matrix product beats as many products with vectors."""
_SEQUENCE_LENS, _PEEPHOLES = 4, 7
_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@bindable("LSTM")
def lstm(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """Long short-term memory of the usual activations, over whole sequences."""
    if info.attribute("input_forget", 0) or not _is_plain(info, ("Sigmoid", "Tanh", "Tanh")):
        return None
    return _bound(info, _Lstm, fold_recurrent_bias=True)


@bindable("GRU")
def gru(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """Gated recurrent unit of the usual activations, over whole sequences."""
    if not _is_plain(info, ("Sigmoid", "Tanh")):
        return None
    resets_after = bool(info.attribute("linear_before_reset", 0))
    return _bound(info, _GruResetAfter if resets_after else _Gru, fold_recurrent_bias=not resets_after)


def _is_plain(info: KernelInfo, functions: Sequence[str]) -> bool:
    names = info.attribute("activations", None)
    directions = len(_BACKWARDS[info.attribute("direction", "forward")])
    usual = names is None or [str(name).lower() for name in names] == [name.lower() for name in functions] * directions
    others = info.has_input(_SEQUENCE_LENS) or info.has_input(_PEEPHOLES)
    return usual and not others and not info.attribute("clip", None) and not info.attribute("layout", 0)


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
            gates: the input's share, (batch, gates * hidden).
            before: the hidden state, (batch, hidden).
            weight: (hidden, gates * hidden).
            bias: the recurrent one where it is not part of ``gates``.
            after: where the new hidden state goes; may be ``before``.
        """
        raise NotImplementedError


def _sigmoid(x: HostArray) -> None:
    np.multiply(x, 0.5, x)
    np.tanh(x, x)
    np.multiply(x, 0.5, x)
    np.add(x, 0.5, x)


class _Lstm(_Cell):
    def step(self, gates: HostArray, before: HostArray, weight: HostArray, _bias: HostArray | None, after: HostArray) -> None:
        inputs, output, forget, candidate = self.parts
        np.matmul(before, weight, self.sums)
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
        np.matmul(before, weight, self.sums)
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


class _Gru(_GruResetAfter):
    def step(self, gates: HostArray, before: HostArray, weight: HostArray, _bias: HostArray | None, after: HostArray) -> None:
        update, reset, candidate = self.parts
        both = 2 * self.hidden.shape[1]
        np.matmul(before, weight[:, :both], self.sums[:, :both])
        np.add(self.sums[:, :both], gates[:, :both], self.sums[:, :both])
        _sigmoid(self.sums[:, :both])
        np.multiply(reset, before, self.work)
        np.matmul(self.work, weight[:, both:], candidate)
        np.add(candidate, gates[:, both:], candidate)
        self._mix(update, candidate, before, after)


def _bound(info: KernelInfo, make_cell: type[_Cell], *, fold_recurrent_bias: bool) -> MakeWriter:
    scratch, backwards = scratch_of(info), _BACKWARDS[info.attribute("direction", "forward")]

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, recurrent = inputs[0], inputs[2]
        cell, given = make_cell((x.shape[1], recurrent.shape[2]), x.dtype), len(inputs)
        task = _task(make_cell, x, recurrent)
        product = None if task is None else _input_product(x, inputs[1])

        def write(*arrays: Any) -> None:
            x, w, r, b, _, initial_h, initial_c = (*arrays[:given], None, None, None, None)[:7]
            sequence, *states = (*arrays[given:], None, None)[:3]
            for index, reverse in enumerate(backwards):
                bias, rows = None if b is None else b[index], w.shape[1]
                gates = _input_gates(x, w[index], bias, scratch, product, folded=fold_recurrent_bias)
                _start(cell, initial_h, initial_c, index)
                recurrent_bias = None if bias is None else bias[rows:]
                steps = None if sequence is None else sequence[:, index]
                if task is None or not r.flags.c_contiguous:
                    last = _run(cell, gates, (r[index].T, recurrent_bias), steps, reverse=reverse)
                else:
                    state = cell.cell if make_cell is _Lstm else recurrent_bias
                    last = task.run(gates, r[index], state, cell.hidden, steps, reverse=reverse)
                for target, value in zip(states, (last, cell.cell), strict=True):
                    if target is not None:
                        np.copyto(target[index], value)

        return write

    return make


def _task(make_cell: type[_Cell], x: HostArray, recurrent: HostArray) -> RecurrentTask | None:
    """The steps as a compiled task, where products with few rows are most of the work."""
    name = {_Lstm: "lstm", _GruResetAfter: "gru"}.get(make_cell)
    is_worth = x.shape[0] * recurrent.size >= MIN_WORK and 0 < x.shape[1] <= MAX_BATCH and libraries.numba().is_usable
    if name is None or not is_worth or not are_floats((x, recurrent)):
        return None
    from .recurrent_task import RecurrentTask

    return RecurrentTask(name, x.shape[1], recurrent.shape[2])


def _input_product(x: HostArray, weight: HostArray) -> InputProduct:
    from .recurrent_task import InputProduct

    return InputProduct(x.shape[0] * x.shape[1], x.shape[2], weight.shape[1])


def _input_gates(
    x: HostArray,
    weight: HostArray,
    bias: HostArray | None,
    scratch: Scratch,
    product: InputProduct | None,
    *,
    folded: bool,
) -> HostArray:
    """The input's share of the gates: (time, batch, gates * hidden), in working memory."""
    time, batch, size = x.shape
    rows = weight.shape[0]
    gates = scratch.array("gates", (time * batch, rows), x.dtype)
    if product is not None and x.flags.c_contiguous and weight.flags.c_contiguous:
        product(x, weight, gates)
    else:
        np.matmul(x.reshape(time * batch, size), weight.T, gates)
    if bias is not None:
        np.add(gates, bias[:rows] + bias[rows:] if folded else bias[:rows], gates)
    return gates.reshape(time, batch, rows)


def _start(cell: _Cell, initial_h: HostArray | None, initial_c: HostArray | None, index: int) -> None:
    for state, given in ((cell.hidden, initial_h), (cell.cell, initial_c)):
        np.copyto(state, 0 if given is None else given[index])


def _run(
    cell: _Cell,
    gates: HostArray,
    recurrent: tuple[HostArray, HostArray | None],
    sequence: HostArray | None,
    *,
    reverse: bool,
) -> HostArray:
    """All time steps; returns the last hidden state, a view of the sequence if that is asked for."""
    hidden, (weight, bias) = cell.hidden, recurrent
    times = range(gates.shape[0])
    for time in reversed(times) if reverse else times:
        after = cell.hidden if sequence is None else sequence[time]
        cell.step(gates[time], hidden, weight, bias, after)
        hidden = after
    return hidden
