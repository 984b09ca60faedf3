"""Arguments of one direction of an LSTM layer over weights of int8."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, LANES, round_up

from .layer import Layer

__all__ = ["COLUMNS_BYTES", "GATES", "MODULE", "QuantizedLstm"]

MODULE = "rnn.layer_int8"
GATES = 4
COLUMNS_BYTES = 512
"""Of the columns' sums and scales of 16 units."""
_K_STEP = 4
"""Elements along K that one dot-product instruction adds up."""


class QuantizedLstm(Layer, module=MODULE, tasks=("lstm_quantized", "lstm_quantized_team")):
    """Weights of inputs and states are int8 panels (panels, K / 4, gates, 16, 4); inputs and states are quantized to uint8."""

    recurrent_columns: Pointer
    """Of each panel: sums of its columns, int32 (4, 16), and their scales, float32 (4, 16)."""
    input_columns: Pointer
    """The same of the inputs' weights."""
    quantized_inputs: Pointer
    """uint8 (steps * batch, inputs)."""
    quantized_states: Pointer
    """uint8 (batch, hidden) of each thread."""
    input_row: int
    """Bytes from row to row of quantized inputs, a multiple of 4."""
    state_row: int
    """Bytes from row to row of quantized states, a multiple of 4."""
    thread_state_bytes: int
    """From one thread's quantized states to the next one's."""

    gate_count = GATES

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        panels, panel_row = self._panels(), LANES * self.gate_count
        yield reads(self.recurrent_weights, panels * round_up(self.hidden, _K_STEP) * panel_row)
        yield reads(self.input_weights, panels * round_up(self.inputs, _K_STEP) * panel_row)
        yield from self._cells()
        yield reads(self.x, self.steps * self.batch * self.inputs * FLOAT)
        yield reads(self.recurrent_columns, panels * COLUMNS_BYTES)
        yield reads(self.input_columns, panels * COLUMNS_BYTES)
        yield uses_workspace(
            self.quantized_inputs, (self.steps * self.batch - 1) * self.input_row + round_up(self.inputs, _K_STEP)
        )
        states = (threads - 1) * self.thread_state_bytes + (self.batch - 1) * self.state_row
        yield uses_workspace(self.quantized_states, states + round_up(self.hidden, _K_STEP))
        yield from self._sequence(threads, writes_gates=True)
