"""RNN, GRU and LSTM: vectorised over the batch, with a loop over time steps only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

from .recurrent_activations import Activation, activations
from .recurrent_shapes import layer_shapes

__all__ = ["DIRECTIONS", "gru", "lstm", "rnn"]

State = tuple[Array, ...]
"""Hidden state (batch, hidden), and for LSTM the cell state beside it."""

Step = Callable[[Array, State], State]
"""One time step: the input's share of the gates (batch, gates * hidden) and the state before, to the state after."""

DIRECTIONS = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each direction runs backwards; GRU-1's specification misspells its default."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One direction's parameters."""

    input: Array
    """(gates * hidden, input)."""
    recurrent: Array
    """(gates * hidden, hidden)."""
    input_bias: Array | None
    recurrent_bias: Array | None
    peepholes: Array | None = None
    """(3 * hidden): input, output and forget gate."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of recurrent layer."""

    gates: int
    states: int
    """1, or 2 with a cell state."""
    activations: tuple[str, ...]
    fold_recurrent_bias: bool
    """Whether the recurrent bias may be added to the input's share, outside the loop."""
    make_step: Callable[[Any, Weights, Sequence[Activation]], Step]


@operator("RNN", host_inputs=(4,), shapes=layer_shapes)
def rnn(info: KernelInfo, xp: Any) -> Compute:
    """One-layer simple recurrence."""
    return _kernel(info, xp, Cell(1, 1, ("Tanh",), True, _rnn_step))


@operator("GRU", host_inputs=(4,), shapes=layer_shapes)
def gru(info: KernelInfo, xp: Any) -> Compute:
    """One-layer gated recurrent unit."""
    linear_before_reset = bool(info.attribute("linear_before_reset", 0))
    step = _gru_step_reset_after if linear_before_reset else _gru_step
    return _kernel(info, xp, Cell(3, 1, ("Sigmoid", "Tanh"), not linear_before_reset, step))


@operator("LSTM", host_inputs=(4,), shapes=layer_shapes)
def lstm(info: KernelInfo, xp: Any) -> Compute:
    """One-layer long short-term memory."""
    step = _lstm_step_coupled if info.attribute("input_forget", 0) else _lstm_step
    return _kernel(info, xp, Cell(4, 2, ("Sigmoid", "Tanh", "Tanh"), True, step))


def _rnn_step(xp: Any, weights: Weights, functions: Sequence[Activation]) -> Step:
    (f,) = functions
    matrix, matmul = xp.matrix_transpose(weights.recurrent), xp.matmul
    return lambda gates, state: (f(gates + matmul(state[0], matrix)),)


def _gru_step(xp: Any, weights: Weights, functions: Sequence[Activation]) -> Step:
    f, g = functions
    hidden = weights.recurrent.shape[1]
    matrix, matmul = xp.matrix_transpose(weights.recurrent), xp.matmul
    matrix_zr, matrix_h = matrix[:, : 2 * hidden], matrix[:, 2 * hidden :]

    def step(gates: Array, state: State) -> State:
        (before,) = state
        zr = f(gates[:, : 2 * hidden] + matmul(before, matrix_zr))
        z, r = zr[:, :hidden], zr[:, hidden:]
        candidate = g(gates[:, 2 * hidden :] + matmul(r * before, matrix_h))
        return (candidate + z * (before - candidate),)

    return step


def _gru_step_reset_after(xp: Any, weights: Weights, functions: Sequence[Activation]) -> Step:
    f, g = functions
    hidden = weights.recurrent.shape[1]
    matrix, matmul = xp.matrix_transpose(weights.recurrent), xp.matmul
    bias = weights.recurrent_bias

    def step(gates: Array, state: State) -> State:
        (before,) = state
        recurrent = matmul(before, matrix)
        if bias is not None:
            recurrent += bias
        zr = f(gates[:, : 2 * hidden] + recurrent[:, : 2 * hidden])
        z, r = zr[:, :hidden], zr[:, hidden:]
        candidate = g(gates[:, 2 * hidden :] + r * recurrent[:, 2 * hidden :])
        return (candidate + z * (before - candidate),)

    return step


def _lstm_step(xp: Any, weights: Weights, functions: Sequence[Activation], *, coupled: bool = False) -> Step:
    if weights.peepholes is not None:
        return _lstm_peephole_step(xp, weights, functions, weights.peepholes, coupled=coupled)
    f, g, h = functions
    hidden = weights.recurrent.shape[1]
    matrix, matmul = xp.matrix_transpose(weights.recurrent), xp.matmul

    def step(gates: Array, state: State) -> State:
        before, cell = state
        gates = gates + matmul(before, matrix)
        iof = f(gates[:, : 3 * hidden])
        i, o, forget = iof[:, :hidden], iof[:, hidden : 2 * hidden], iof[:, 2 * hidden :]
        cell = (1 - i if coupled else forget) * cell + i * g(gates[:, 3 * hidden :])
        return o * h(cell), cell

    return step


def _lstm_peephole_step(xp: Any, weights: Weights, functions: Sequence[Activation], peepholes: Array, *, coupled: bool) -> Step:
    """Gates also see the cell state: input and forget gate the one before, the output gate the new one."""
    f, g, h = functions
    hidden = weights.recurrent.shape[1]
    matrix, matmul = xp.matrix_transpose(weights.recurrent), xp.matmul
    p_i, p_o, p_f = peepholes[:hidden], peepholes[hidden : 2 * hidden], peepholes[2 * hidden :]

    def step(gates: Array, state: State) -> State:
        before, cell = state
        gates = gates + matmul(before, matrix)
        i = f(gates[:, :hidden] + p_i * cell)
        forget = 1 - i if coupled else f(gates[:, 2 * hidden : 3 * hidden] + p_f * cell)
        cell = forget * cell + i * g(gates[:, 3 * hidden :])
        o = f(gates[:, hidden : 2 * hidden] + p_o * cell)
        return o * h(cell), cell

    return step


def _lstm_step_coupled(xp: Any, weights: Weights, functions: Sequence[Activation]) -> Step:
    return _lstm_step(xp, weights, functions, coupled=True)


def _kernel(info: KernelInfo, xp: Any, cell: Cell) -> Compute:
    direction = info.attribute("direction", "forward")
    if direction not in DIRECTIONS:
        raise InvalidGraph(f"{info.describe()}: direction is '{direction}'; it must be forward, reverse or bidirectional")
    backwards = DIRECTIONS[direction]
    functions = activations(info, xp, cell.activations, len(backwards))
    clip = info.attribute("clip", None)
    if clip:
        functions = [_clipped(xp, row, float(clip)) for row in functions]
    batch_first = bool(info.attribute("layout", 0))
    wants_sequence = info.wants_output(0)

    def compute(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        sequence_lens: HostArray | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
    ) -> tuple[Array | None, ...]:
        if batch_first:
            x = xp.permute_dims(x, (1, 0, 2))
        mask = _active(info, xp, sequence_lens, x)
        sequences, finals = [], []
        for index, reverse in enumerate(backwards):
            weights = _weights(w, r, b, p, index, cell)
            initial = tuple(
                _initial(xp, given, index, batch_first, (x.shape[1], r.shape[2]), x.dtype)
                for given in (initial_h, initial_c)[: cell.states]
            )
            step = cell.make_step(xp, weights, functions[index])
            outputs, final = _run(xp, step, _input_gates(xp, x, weights, cell), initial, mask, reverse=reverse)
            sequences.append(_stacked(xp, outputs, final[0]) if wants_sequence else None)
            finals.append(final)
        axis = 1 if batch_first else 0
        states = tuple(xp.stack([final[state] for final in finals], axis=axis) for state in range(cell.states))
        return _sequence(xp, sequences, batch_first), *states

    return compute


def _clipped(xp: Any, functions: Sequence[Activation], bound: float) -> list[Activation]:
    """Activations of gates with their input clipped; LSTM's third one, of the cell state, is left alone as in ONNX Runtime."""
    clip = xp.clip

    def clipped(function: Activation) -> Activation:
        return lambda x: function(clip(x, -bound, bound))

    return [*map(clipped, functions[:2]), *functions[2:]]


def _weights(w: Array, r: Array, b: Array | None, p: Array | None, index: int, cell: Cell) -> Weights:
    rows = cell.gates * r.shape[-1]
    bias = None if b is None else b[index, :]
    return Weights(
        w[index, ...],
        r[index, ...],
        None if bias is None else bias[:rows],
        None if bias is None else bias[rows:],
        None if p is None else p[index, :],
    )


def _input_gates(xp: Any, x: Array, weights: Weights, cell: Cell) -> Array:
    """The input's share of the gates for all time steps at once: (time, batch, gates * hidden)."""
    gates = xp.matmul(x, xp.matrix_transpose(weights.input))
    if weights.input_bias is not None:
        gates += weights.input_bias + weights.recurrent_bias if cell.fold_recurrent_bias else weights.input_bias
    return gates


def _active(info: KernelInfo, xp: Any, sequence_lens: HostArray | None, x: Array) -> Array | None:
    """Which time steps are within each sequence: bool, (time, batch, 1); None if all are.

    Raises:
        InvalidArgument: a sequence has less than none, or more than there are.
    """
    if sequence_lens is not None and np.any((sequence_lens < 0) | (sequence_lens > x.shape[0])):
        raise InvalidArgument(
            f"{info.describe()}: sequence_lens are {sequence_lens.tolist()}; X has {x.shape[0]} steps, so they must be within"
            f" [0, {x.shape[0]}]"
        )
    if sequence_lens is None or bool(np.all(sequence_lens == x.shape[0])):
        return None
    mask = np.arange(x.shape[0])[:, None] < sequence_lens
    return xp.from_host(mask[:, :, None])


def _initial(xp: Any, given: Array | None, index: int, batch_first: bool, shape: tuple[int, int], dtype: Any) -> Array:
    if given is None:
        return xp.zeros(shape, dtype=dtype)
    return given[:, index, :] if batch_first else given[index, ...]


def _run(xp: Any, step: Step, gates: Array, state: State, mask: Array | None, *, reverse: bool) -> tuple[list[Array], State]:
    """All time steps; past a sequence's end its state stays and its outputs are zero.

    Going backwards, the state stays at its initial value until the sequence's last element is reached. The state of an empty
    sequence is zero, as in ONNX Runtime.
    """
    length = gates.shape[0]
    if not length:
        return [], tuple(xp.zeros_like(value) for value in state)
    outputs: list[Array] = [None] * length
    for time in reversed(range(length)) if reverse else range(length):
        after = step(gates[time, ...], state)
        if mask is None:
            outputs[time], state = after[0], after
            continue
        active = mask[time, ...]
        outputs[time] = xp.where(active, after[0], xp.zeros_like(after[0]))
        state = tuple(xp.where(active, new, old) for new, old in zip(after, state, strict=True))
    if mask is not None:
        state = tuple(xp.where(mask[0, ...], value, xp.zeros_like(value)) for value in state)
    return outputs, state


def _stacked(xp: Any, outputs: list[Array], state: Array) -> Array:
    """Outputs of all time steps: (time, batch, hidden); of none as well."""
    return xp.stack(outputs) if outputs else xp.zeros((0, *state.shape), dtype=state.dtype)


def _sequence(xp: Any, sequences: list[Array | None], batch_first: bool) -> Array | None:
    """Directions' outputs (time, batch, hidden) as (time, directions, batch, hidden), or batch first."""
    if sequences[0] is None:
        return None
    stacked = xp.stack(sequences, axis=1)
    return xp.permute_dims(stacked, (2, 0, 1, 3)) if batch_first else stacked
