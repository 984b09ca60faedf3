"""Shapes that the inputs of recurrent layers may have together."""

from __future__ import annotations

from ort_sdk.api import KernelInfo
from ort_sdk.opset.input_shapes import InputShapes

__all__ = ["layer_shapes", "quantized_layer_shapes"]

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
PEEPHOLES = 3
"""Gates of LSTM that see the cell."""


def layer_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of RNN, GRU and LSTM."""
    directions, gates = _match_sequence(info, shapes), GATES[info.op_type]
    shapes.match(2, "R", (directions, None, "hidden"))
    shapes.match(1, "W", (directions, gates * shapes["hidden"], "input"))
    shapes.match(2, "R", (directions, gates * shapes["hidden"], "hidden"))
    _match_states(info, shapes, directions, gates)


def quantized_layer_shapes(info: KernelInfo, shapes: InputShapes) -> None:
    """Those of DynamicQuantizeLSTM, whose weights are transposed, with scales and zero points of directions or columns."""
    directions, gates = _match_sequence(info, shapes), GATES["LSTM"]
    shapes.match(2, "R", (directions, "hidden", None))
    columns = gates * shapes["hidden"]
    shapes.match(1, "W", (directions, "input", columns))
    shapes.match(2, "R", (directions, "hidden", columns))
    _match_states(info, shapes, directions, gates)
    for index, name in enumerate(("W_scale", "W_zero_point", "R_scale", "R_zero_point"), 8):
        shapes.match(index, name, (directions,), (directions, columns), *([()] if directions == 1 else []))


def _match_sequence(info: KernelInfo, shapes: InputShapes) -> int:
    """The input; how many directions the layer has."""
    shapes.match(0, "X", ("batch", "time", "input") if info.attribute("layout", 0) else ("time", "batch", "input"))
    return 2 if info.attribute("direction", "forward") == "bidirectional" else 1


def _match_states(info: KernelInfo, shapes: InputShapes, directions: int, gates: int) -> None:
    """What is there beside weights: a state is one of each sample, not one for all."""
    hidden = shapes["hidden"]
    shapes.match(3, "B", (directions, 2 * gates * hidden))
    shapes.match(4, "sequence_lens", ("batch",))
    state = ("batch", directions, "hidden") if info.attribute("layout", 0) else (directions, "batch", "hidden")
    shapes.match(5, "initial_h", state)
    shapes.match(6, "initial_c", state)
    shapes.match(7, "P", (directions, PEEPHOLES * hidden))
