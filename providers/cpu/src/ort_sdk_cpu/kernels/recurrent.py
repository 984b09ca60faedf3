"""LSTM and GRU: the input's share of all gates in one product, then each time step in place on kept buffers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu import libraries

from .bindable import MakeWriter, Writer, bindable
from .scratch import Scratch, scratch_of
from .task_writer import are_floats

if TYPE_CHECKING:
    from .recurrent_task import RecurrentTask

__all__: list[str] = []

MIN_WORK = 1 << 14
"""Weights times steps from which a compiled task is worth loading."""
MAX_BATCH = 32
"""Rows from which a matrix product beats as many products with vectors."""
_SEQUENCE_LENS, _PEEPHOLES = 4, 7
_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@bindable("LSTM")
def lstm(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Long short-term memory of the usual activations, over whole sequences."""
    if info.attribute("input_forget", 0) or not _is_plain(info, ("Sigmoid", "Tanh", "Tanh")):
        return None
    return _of_any_length(info, compute, _bound(info, _Lstm, fold_recurrent_bias=True))


@bindable("GRU")
def gru(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Gated recurrent unit of the usual activations, over whole sequences."""
    if not _is_plain(info, ("Sigmoid", "Tanh")):
        return None
    resets_after = bool(info.attribute("linear_before_reset", 0))
    make = _bound(info, _GruResetAfter if resets_after else _Gru, fold_recurrent_bias=not resets_after)
    return _of_any_length(info, compute, make)


def _of_any_length(info: KernelInfo, compute: Any, make: MakeWriter) -> MakeWriter:
    """Writers for whole sequences, which hand shorter ones to the shared set: the lengths are known only in a run."""
    if not info.has_input(_SEQUENCE_LENS):
        return make
    return lambda inputs, outputs: _LengthWriter(make(inputs, outputs), compute, len(inputs))


class _LengthWriter:
    def __init__(self, writer: Writer, compute: Any, given: int) -> None:
        self._writer, self._compute, self._given = writer, compute, given

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        if _are_whole(arrays):
            self._writer(*arrays)
        else:
            self._write_shorter(arrays)

    def fixed(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        make = getattr(self._writer, "fixed", None)
        whole = None if make is None else make(*arrays)
        return None if whole is None else lambda: whole() if _are_whole(arrays) else self._write_shorter(arrays)

    def _write_shorter(self, arrays: Sequence[Any]) -> None:
        results = self._compute(*arrays[: self._given])
        for out, result in zip(arrays[self._given :], results if isinstance(results, tuple) else (results,), strict=False):
            if out is not None:
                np.copyto(out, result)


def _are_whole(arrays: Sequence[Any]) -> bool:
    lengths = arrays[_SEQUENCE_LENS]
    return lengths is None or bool((lengths == len(arrays[0])).all())


def _is_plain(info: KernelInfo, functions: Sequence[str]) -> bool:
    names = info.attribute("activations", None)
    directions = len(_BACKWARDS[info.attribute("direction", "forward")])
    usual = names is None or [str(name).lower() for name in names] == [name.lower() for name in functions] * directions
    return usual and not info.has_input(_PEEPHOLES) and not info.attribute("clip", None) and not info.attribute("layout", 0)


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
    backwards = _BACKWARDS[info.attribute("direction", "forward")]
    constant = all(not info.has_input(index) or index in info.constants for index in range(1, 4))

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        x, recurrent = inputs[0], inputs[2]
        stepwise = _stepwise(info, make_cell, (x.shape[1], recurrent.shape[2]), x.dtype, folded=fold_recurrent_bias)
        if not _is_worth_a_task(inputs):
            return functools.partial(stepwise, len(inputs))
        tasks = [_task(_NAMES[make_cell], x, recurrent, scratch_of(info), reverse=reverse) for reverse in backwards]
        return _Tasks(tasks, len(inputs), stepwise, weights=inputs[1:4] if constant else None)

    return make


def _stepwise(
    info: KernelInfo, make_cell: type[_Cell], shape: tuple[int, int], dtype: Any, *, folded: bool
) -> Callable[..., None]:
    """``write(number of inputs, *inputs, *outputs)`` by NumPy, step by step."""
    scratch, cell, backwards = scratch_of(info), make_cell(shape, dtype), _BACKWARDS[info.attribute("direction", "forward")]

    def write(given: int, *arrays: Any) -> None:
        x, w, r, b, _, initial_h, initial_c = (*arrays[:given], None, None, None, None)[:7]
        sequence, *states = (*arrays[given:], None, None)[:3]
        for index, reverse in enumerate(backwards):
            bias, rows = None if b is None else b[index], w.shape[1]
            gates = _input_gates(x, w[index], bias, scratch, folded=folded)
            _start(cell, initial_h, initial_c, index)
            recurrent = (r[index].T, None if bias is None else bias[rows:])
            steps = None if sequence is None else sequence[:, index]
            last = _run(cell, gates, recurrent, steps, reverse=reverse)
            for target, value in zip(states, (last, cell.cell), strict=True):
                if target is not None:
                    np.copyto(target[index], value)

    return write


_NAMES = {_Lstm: "lstm", _GruResetAfter: "gru", _Gru: "gru_reset_first"}
"""Tasks that do the work of a cell."""


def _is_worth_a_task(inputs: Sequence[Any]) -> bool:
    x, recurrent = inputs[0], inputs[2]
    is_large = x.shape[0] * recurrent.size >= MIN_WORK and 0 < x.shape[1] <= MAX_BATCH and x.shape[2] > 0
    return is_large and libraries.numba().is_usable and are_floats((x, *inputs[1:4], *inputs[5:7]))


def _task(name: str, x: HostArray, recurrent: HostArray, scratch: Scratch, *, reverse: bool) -> RecurrentTask:
    from .recurrent_task import LayerSizes, RecurrentTask

    (steps, batch, size), hidden = x.shape, recurrent.shape[2]
    return RecurrentTask(name, LayerSizes(steps, batch, size, hidden, recurrent.shape[1] // hidden), scratch, reverse=reverse)


class _Tasks:
    """A layer's directions as compiled tasks.

    Args:
        tasks: one per direction.
        given: number of inputs.
        otherwise: writes where inputs do not lie as the tasks read them.
        weights: W, R and B, if they are constants.
    """

    def __init__(
        self, tasks: Sequence[RecurrentTask], given: int, otherwise: Callable[..., None], weights: Sequence[Any] | None
    ) -> None:
        self._tasks, self._given, self._otherwise = tasks, given, otherwise
        self._has_weights = weights is not None and _are_contiguous(weights)
        if weights is not None and self._has_weights:
            self._use(*weights)

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        given = self._given
        inputs = arrays[:given]
        if not _are_contiguous(inputs if not self._has_weights else (inputs[0], *inputs[5:7])):
            self._otherwise(given, *arrays)
            return
        x, w, r, b, _, *before = (*inputs, None, None, None, None)[:7]
        if not self._has_weights:
            self._use(w, r, b)
        sequence, *last = (*arrays[given:], None, None)[:3]
        for index, task in enumerate(self._tasks):
            after = None if sequence is None else sequence[:, index]
            task.run(x, _rows(before, index), after, _rows(last, index))

    def fixed(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if it is more than a task, or they do not lie as it needs them."""
        given = self._given
        inputs = arrays[:given]
        if not _are_contiguous(inputs) or len(self._tasks) != 1:
            return None
        x, w, r, b, _, *before = (*inputs, None, None, None, None)[:7]
        if not self._has_weights:
            self._use(w, r, b)
        sequence, *last = (*arrays[given:], None, None)[:3]
        return self._tasks[0].fixed(x, _rows(before, 0), None if sequence is None else sequence[:, 0], _rows(last, 0))

    def _use(self, w: HostArray, r: HostArray, b: HostArray | None = None) -> None:
        for index, task in enumerate(self._tasks):
            task.use_weights(w[index], r[index], None if b is None else b[index])


def _are_contiguous(arrays: Sequence[Any]) -> bool:
    return all(array is None or array.flags.c_contiguous for array in arrays)


def _rows(arrays: Sequence[Any], index: int) -> list[Any]:
    return [None if array is None else array[index] for array in arrays]


def _input_gates(
    x: HostArray,
    weight: HostArray,
    bias: HostArray | None,
    scratch: Scratch,
    *,
    folded: bool,
) -> HostArray:
    """The input's share of the gates: (time, batch, gates * hidden), in working memory."""
    time, batch, size = x.shape
    rows = weight.shape[0]
    gates = scratch.array("gates", (time * batch, rows), x.dtype)
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
