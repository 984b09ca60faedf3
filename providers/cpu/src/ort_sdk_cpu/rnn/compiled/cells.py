"""Cells of LSTM (Hochreiter & Schmidhuber 1997, with Gers' forget gate 2000), GRU (Cho et al. 2014) and RNN: 16 hidden units.

All functions take addresses of 16 units of one sample, of which only the first ``left`` are there, and the sums of their gates:
products of input and state with weights, and both biases. The sums of the next gate are 64 bytes on.
"""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.rnn.arguments.layer import FloatLayer, Layer
from ort_sdk_cpu.simd.arithmetic import (
    add,
    fused_multiply_add,
    maximum,
    maximum_or_nan,
    minimum,
    multiply,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import sigmoid, tanh
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, load_f32_masked, read_f32, store_f32, store_f32_masked

__all__ = [
    "GRU",
    "GRU_RESET_FIRST",
    "LSTM",
    "RNN",
    "RNN_RELU",
    "begin_candidate",
    "begin_sums",
    "blend",
    "candidate_of",
    "general_lstm_unit",
    "gru_unit",
    "lstm_unit",
    "reset_unit",
    "rnn_unit",
]

LSTM, GRU, GRU_RESET_FIRST, RNN, RNN_RELU = 0, 1, 2, 3, 4
"""Kinds of layers. Tasks are compiled for one each, so that nothing asks for it at run time."""
_IDENTITY, _SIGMOID = 0, 1
"""Functions of described activations; any other is tanh."""
_ACTIVATION_BYTES = 32


@inline
def _begin_sum(gates: int, bias: int, recurrent_bias: int, offset: int, left: int, target: int) -> None:
    """What a sum begins with: the input's product, and both biases."""
    biases = add(load_f32_masked(bias + offset, left), load_f32_masked(recurrent_bias + offset, left))
    store_f32(target, add(load_f32_masked(gates + offset, left), biases))


@inline
def begin_sums(kind: int, args: Layer, gates: int, offset: int, left: int, target: int) -> None:
    """What the sums of 16 units of a sample begin with."""
    bias, recurrent_bias, row = args.input_bias, args.recurrent_bias, args.hidden * 4
    # Sums begin with all that is added, so that the product adds to them, and nothing is added afterwards.
    _begin_sum(gates, bias, recurrent_bias, offset, left, target)
    if kind < RNN:
        _begin_sum(gates, bias, recurrent_bias, offset + row, left, target + 64)
    if kind == LSTM:
        _begin_sum(gates, bias, recurrent_bias, offset + 2 * row, left, target + 128)
        _begin_sum(gates, bias, recurrent_bias, offset + 3 * row, left, target + 192)
    elif kind == GRU:
        # The reset gate multiplies what comes of the state alone.
        store_f32(target + 128, load_f32_masked(recurrent_bias + offset + 2 * row, left))


@inline
def begin_candidate(args: Layer, gates: int, offset: int, left: int, target: int) -> None:
    """What the sum of the candidate of a GRU that resets first begins with."""
    _begin_sum(gates, args.input_bias, args.recurrent_bias, offset + 2 * args.hidden * 4, left, target)


@inline
def _activated(x: Any, activation: int) -> Any:
    """A described activation: bounds and a line, a function of that, and a factor and bounds of the result.

    One form for all that ONNX has (Affine, HardSigmoid, Relu, ScaledTanh, ...), so that they need no tasks of their own.
    """
    bound = broadcast_f32(activation + 4)
    bounded = minimum(bound, maximum(subtract(zero_f32(), bound), x))
    value = fused_multiply_add(bounded, broadcast_f32(activation + 8), broadcast_f32(activation + 12))
    # A branch per vector that always goes one way: it is predicted, and costs less than a task for each activation.
    kind = int(read_f32(activation))
    if kind == _SIGMOID:
        value = sigmoid(value)
    elif kind != _IDENTITY:
        value = multiply(tanh(value), broadcast_f32(activation + 16))
    return minimum(broadcast_f32(activation + 24), maximum(broadcast_f32(activation + 20), value))


@inline
def _activate(sums: int, activation: int) -> None:
    store_f32(sums, _activated(load_f32(sums), activation))


@inline
def _add_peephole(sums: int, peephole: int, cells: Any, left: int) -> None:
    """Add what a gate sees of the cells (Gers & Schmidhuber 2000)."""
    store_f32(sums, fused_multiply_add(load_f32_masked(peephole, left), cells, load_f32(sums)))


@inline
def general_lstm_unit(args: FloatLayer, sums: int, before: int, cell: int, after: int, unit: int, left: int) -> None:
    """As ``lstm_unit``, with described activations, and with peepholes; the output gate sees the new cells."""
    activations, peepholes, row = args.activations, args.peepholes, args.hidden * 4
    old = load_f32_masked(before, left)
    if peepholes:
        _add_peephole(sums, peepholes + unit, old, left)
        _add_peephole(sums + 128, peepholes + 2 * row + unit, old, left)
    # Not the output gate yet: its peephole sees the new cells.
    for gate in range(4):
        if gate != 1:
            _activate(sums + gate * 64, activations + gate // 3 * _ACTIVATION_BYTES)
    state = fused_multiply_add(load_f32(sums), load_f32(sums + 192), multiply(load_f32(sums + 128), old))
    store_f32_masked(cell, state, left)
    if peepholes:
        _add_peephole(sums + 64, peepholes + row + unit, state, left)
    _activate(sums + 64, activations)
    store_f32_masked(after, multiply(load_f32(sums + 64), _activated(state, activations + 2 * _ACTIVATION_BYTES)), left)


@inline
def lstm_unit(sums: int, before: int, cell: int, after: int, left: int) -> None:
    """The new cells and hidden states of 16 units of a sample, from the sums of its gates."""
    entry, output, forget = sigmoid(load_f32(sums)), sigmoid(load_f32(sums + 64)), sigmoid(load_f32(sums + 128))
    # State and gates stay in registers from the sums to the hidden state.
    kept = multiply(forget, load_f32_masked(before, left))
    state = fused_multiply_add(entry, tanh(load_f32(sums + 192)), kept)
    store_f32_masked(cell, state, left)
    store_f32_masked(after, multiply(output, tanh(state)), left)


@inline
def _gate(activations: int, sums: int) -> None:
    """A gate of GRU, in the place of its sum."""
    if activations:
        _activate(sums, activations)
    else:
        store_f32(sums, sigmoid(load_f32(sums)))


@inline
def candidate_of(activations: int, x: Any) -> Any:
    """A GRU's new hidden states before the update gate."""
    return _activated(x, activations + _ACTIVATION_BYTES) if activations else tanh(x)


@inline
def gru_unit(activations: int, sums: int, gates: int, bias: int, before: int, after: int, left: int) -> None:
    """The new hidden states of a GRU that resets after the product: the input's product is no part of the candidate's sum."""
    own = add(load_f32_masked(gates, left), load_f32_masked(bias, left))
    _gate(activations, sums)
    _gate(activations, sums + 64)
    candidate = fused_multiply_add(load_f32(sums + 64), load_f32(sums + 128), own)
    blend(load_f32(sums), candidate_of(activations, candidate), before, after, left)


@inline
def blend(update: Any, candidate: Any, before: int, after: int, left: int) -> None:
    """The new hidden states: z h + (1 - z) h', where z is the update gate and h' the candidate."""
    # z (h - h') + h' is one multiplication less than z h + (1 - z) h'.
    change = subtract(load_f32_masked(before, left), candidate)
    store_f32_masked(after, fused_multiply_add(update, change, candidate), left)


@inline
def reset_unit(activations: int, sums: int, before: int, update: int, reset: int, left: int) -> None:
    """Keep the update gate, and the hidden state times the reset gate."""
    _gate(activations, sums)
    _gate(activations, sums + 64)
    store_f32_masked(update, load_f32(sums), left)
    store_f32_masked(reset, multiply(load_f32(sums + 64), load_f32_masked(before, left)), left)


@inline
def rnn_unit(kind: int, activations: int, sums: int, after: int, left: int) -> None:
    """The new hidden states of a simple recurrence."""
    total = load_f32(sums)
    if activations:
        store_f32_masked(after, _activated(total, activations), left)
    else:
        store_f32_masked(after, maximum_or_nan(total, zero_f32()) if kind == RNN_RELU else tanh(total), left)
