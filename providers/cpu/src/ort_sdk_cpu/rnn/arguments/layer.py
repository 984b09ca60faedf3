"""Arguments of one direction of an LSTM, GRU or RNN layer."""

from __future__ import annotations

from typing import Any, ClassVar

from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, VECTOR, round_up

__all__ = ["MODULE", "THREAD_BYTES", "FloatLayer", "Gru", "GruResetFirst", "Layer", "Lstm", "Rnn"]

MODULE = "rnn.layer"

THREAD_BYTES = 1024
"""Workspace of a thread: the sums of four gates of 16 units, for four samples."""
_ACTIVATION, _LAST_ACTIVATION = 32, 28
"""Bytes of an activation that is described, and those that are read of the last."""


class Layer(TaskArguments):
    """What tasks of all weights take. A step's gates are (batch, gates * hidden), in ONNX's order of gates; all is float32."""

    recurrent_weights: Pointer
    """Panels of 16 hidden units, see ``packing``."""
    resets: Pointer
    """(2, batch, hidden): update gates, and hidden states times reset gates. Of a GRU that resets before the product."""
    first_cells: Pointer
    """(batch, hidden), LSTM's, before the first step."""
    cells: Pointer
    """(batch, hidden), LSTM's, after the last step so far."""
    gates: Pointer
    """The first step's: the product of its inputs with their weights, without biases."""
    first_state: Pointer
    """(batch, hidden), before the first step."""
    states: Pointer
    """(batch, hidden), after the first step."""
    gates_stride: int
    """Bytes from step to step; below 0 where the last step of the sequence is the first one done."""
    states_stride: int
    """The same of states."""
    steps: int
    hidden: int
    batch: int
    x: NullablePointer
    """(steps * batch, inputs) for the task to multiply; 0: ``gates`` has the product."""
    input_weights: Pointer
    """(gates * hidden, inputs)."""
    inputs: int
    input_bias: Pointer
    """(gates * hidden)."""
    recurrent_bias: Pointer
    """(gates * hidden)."""
    last_state: Pointer
    """(batch, hidden); 0: it is not wanted."""
    workspace: Pointer
    """``THREAD_BYTES`` of each thread."""
    lengths: Pointer
    """int32 (batch): steps of each sample; 0: all have all."""

    gate_count: ClassVar[int]

    @classmethod
    def of_sizes(cls, **sizes: int) -> Any:
        """Arguments with these sizes and strides; addresses are pointed later, and all else is 0."""
        words = [0] * len(cls.fields)
        for name, size in sizes.items():
            words[getattr(cls, name)] = size
        return cls.of_words(words)

    def _state_bytes(self) -> int:
        return self.batch * self.hidden * FLOAT

    def _panels(self) -> int:
        return round_up(self.hidden) // LANES

    def _sequence(self, threads: int, *, writes_gates: bool) -> Extents:
        """What tasks of all weights touch but for weights and cells."""
        state, vector = self._state_bytes(), self.gate_count * self.hidden * FLOAT
        yield accesses(self.gates, (self.steps,), (self.gates_stride,), self.gate_count * state, is_written=writes_gates)
        yield reads(self.first_state, state)
        yield accesses(self.states, (self.steps,), (self.states_stride,), state, is_written=True)
        yield reads(self.input_bias, vector)
        yield reads(self.recurrent_bias, vector)
        yield writes(self.last_state, state, may_be_none=True)
        yield uses_workspace(self.workspace, threads * THREAD_BYTES)
        yield reads_if_given(self.lengths, self.batch * FLOAT)

    def _cells(self) -> Extents:
        yield reads(self.first_cells, self._state_bytes())
        yield writes(self.cells, self._state_bytes())


class FloatLayer(Layer):
    """Arguments of tasks over weights of float32, and over recurrent ones of 24 bits."""

    activations: Pointer
    """(activations, 8), see ``activations``; 0 for the operator's own."""
    peepholes: Pointer
    """(3, hidden), LSTM's weights from cells to input, output and forget gates; 0 for none."""

    activation_count: ClassVar[int]

    def _unit_bytes(self) -> int:
        """Of a panel for each gate."""
        return self.hidden * VECTOR

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield reads(self.recurrent_weights, self._panels() * self.gate_count * self._unit_bytes())
        yield from self._sequence(threads, writes_gates=self.x.is_given)
        if self.x.is_given:
            yield reads(self.x, self.steps * self.batch * self.inputs * FLOAT)
            yield reads(self.input_weights, self.gate_count * self.hidden * self.inputs * FLOAT)
        yield reads_if_given(self.activations, (self.activation_count - 1) * _ACTIVATION + _LAST_ACTIVATION)


class Lstm(FloatLayer, module=MODULE, tasks=("lstm", "lstm_team")):
    """Gates: input, output, forget, cell."""

    gate_count = 4
    activation_count = 3

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from super().extents(threads=threads)
        yield from self._cells()
        yield reads_if_given(self.peepholes, 3 * self.hidden * FLOAT)


class Gru(FloatLayer, module=MODULE, tasks=("gru", "gru_team")):
    """Gates: update, reset, hidden; the reset gate multiplies the candidate's product (``linear_before_reset``)."""

    gate_count = 3
    activation_count = 2


class GruResetFirst(FloatLayer, module=MODULE, tasks=("gru_reset_first", "gru_reset_first_team")):
    """The same where the reset gate multiplies the hidden state before the candidate's product."""

    gate_count = 3
    activation_count = 2

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from super().extents(threads=threads)
        yield uses_workspace(self.resets, 2 * self._state_bytes())


class Rnn(FloatLayer, module=MODULE, tasks=("rnn", "rnn_team", "rnn_relu", "rnn_relu_team")):
    """One gate."""

    gate_count = 1
    activation_count = 1
