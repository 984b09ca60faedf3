"""Small recurrent layers bound to arrays that stay: all directions, any layout, and no Python between the steps around them."""

from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu import libraries

from ort_sdk.api import NodeArg

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def layer(op_type, directions, sizes):
    """X, W, R, B, no lengths, and first states."""
    rng = np.random.default_rng(0)
    (steps, batch, inputs), hidden = sizes, 5
    rows = GATES[op_type] * hidden
    shapes = [(steps, batch, inputs), (directions, rows, inputs), (directions, rows, hidden), (directions, 2 * rows)]
    states = [(directions, batch, hidden)] * (2 if op_type == "LSTM" else 1)
    made = [rng.standard_normal(shape).astype(np.float32) / 2 for shape in (*shapes, *states)]
    return [*made[:4], None, *made[4:]]


@pytest.mark.parametrize("sizes", [(33, 1, 8), (1, 33, 8), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", GATES)
def test_layers_from_any_layout(check, op_type, direction, sizes):
    directions = 2 if direction == "bidirectional" else 1
    x, *others = layer(op_type, directions, sizes)
    wanted = (0, 1, 2) if op_type == "LSTM" else (0, 1)
    for lying in (x, np.asfortranarray(x), np.repeat(x, 2, axis=2)[:, :, ::2]):
        options = {"constants": (1, 2, 3), "direction": direction, "hidden_size": 5, "wanted": wanted}
        check(op_type, lying, *others, tolerance=1e-5, **options)


@pytest.mark.skipif(not libraries.numba().is_usable, reason="no compiler")
def test_both_directions_of_a_small_layer_need_no_python(make_kernel):
    inputs = layer("GRU", 2, (33, 1, 8))
    inputs[0] = np.asfortranarray(inputs[0])
    outputs = [np.empty((33, 2, 1, 5), np.float32), np.empty((2, 1, 5), np.float32)]
    declared = tuple(NodeArg(name, "tensor(float)", array.shape) for name, array in zip("yh", outputs, strict=True))
    attributes = {"direction": "bidirectional", "hidden_size": 5, "linear_before_reset": 1}
    kernel = make_kernel("GRU", inputs, attributes, "", None, (1, 2, 3), declared)
    slots = [[SimpleNamespace(array=array, is_fixed=True) for array in arrays] for arrays in (inputs, outputs)]
    assert kernel.bind(*slots).native is not None
