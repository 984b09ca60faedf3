"""Recurrent networks."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("GRU", "LSTM", "RNN")
@shape_rule("DynamicQuantizeLSTM", domain="com.microsoft")
def recurrent(call: NodeCall) -> list[Shape | None]:
    """Y (sequence, directions, batch, hidden), then the final states (directions, batch, hidden); batch first in layout 1."""
    x = call.shape(0)
    sequence, batch = (None, None) if x is None else x[:2]
    directions = 2 if call.attribute("direction", "forward") == "bidirectional" else 1
    hidden = call.attribute("hidden_size")
    if call.attribute("layout", 0):
        state: Shape = (sequence, directions, hidden)
        return [(sequence, batch, directions, hidden), state, state]
    state = (directions, batch, hidden)
    return [(sequence, directions, batch, hidden), state, state]
