"""RNN, GRU and LSTM of ai.onnx against onnxruntime, and over another array library."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(6)
TIME, BATCH, INPUT, HIDDEN = 7, 3, 4, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
LENGTHS = np.array([7, 3, 5], np.int32)


def normal(*shape):
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def weights(op_type, directions):
    rows = GATES[op_type] * HIDDEN
    return normal(directions, rows, INPUT), normal(directions, rows, HIDDEN), normal(directions, 2 * rows)


def outputs_of(op_type):
    return 3 if op_type == "LSTM" else 2


def initial_states(op_type, directions):
    return [normal(directions, BATCH, HIDDEN) for _ in range(outputs_of(op_type) - 1)]


def variants(op_type, directions):
    """Inputs and attributes beyond the defaults."""
    x, (w, r, b) = normal(TIME, BATCH, INPUT), weights(op_type, directions)
    states = initial_states(op_type, directions)
    yield [x, w, r], {}
    yield [x, w, r, b, LENGTHS, *states], {}
    yield [x, w, r, b, np.array([4, 0, 2], np.int32), *states], {}
    yield [x, w, r, b, None, *states], {"clip": 0.5}
    if op_type == "GRU":
        yield [x, w, r, b, LENGTHS, *states], {"linear_before_reset": 1}
        yield [x, w, r, None, None, *states], {"linear_before_reset": 1, "clip": 0.5}
    if op_type == "LSTM":
        peepholes = normal(directions, 3 * HIDDEN)
        yield [x, w, r, b, LENGTHS, *states, peepholes], {"clip": 0.4}
        yield [x, w, r, b, LENGTHS, *states, peepholes], {"input_forget": 1}
        yield [x, w, r, b, LENGTHS, *states], {"input_forget": 1}


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_recurrence(op_type, direction, opset):
    for inputs, extra in variants(op_type, DIRECTIONS[direction]):
        attributes = {"hidden_size": HIDDEN, "direction": direction, **extra}
        compare(op_type, inputs, outputs_of(op_type), opset=opset, attributes=attributes, rtol=1e-4)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_recurrence_over_another_library(op_type, direction):
    types = [TensorElementType.FLOAT] * outputs_of(op_type)
    for inputs, extra in variants(op_type, DIRECTIONS[direction]):
        attributes = {"hidden_size": HIDDEN, "direction": direction, **extra}
        results = run_kernel(op_type, inputs, types, opset=22, attributes=attributes)
        model, feeds = make_model(
            op_type, inputs, len(types), opset=22, attributes=attributes, output_types=list(map(int, types))
        )
        for result, expected in zip(results, run_sdk(model, feeds), strict=True):
            assert_same(result, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Relu", None, None),
        ("Tanh", None, None),
        ("Sigmoid", None, None),
        ("Affine", 0.3, 0.2),
        ("LeakyRelu", None, None),
        ("LeakyRelu", 0.3, None),
        ("ThresholdedRelu", 0.2, None),
        ("ScaledTanh", 0.7, 0.8),
        ("HardSigmoid", None, None),
        ("Elu", 0.4, None),
        ("Softsign", None, None),
        ("Softplus", None, None),
    ],
)
def test_activations(name, alpha, beta, op_type):
    count = ACTIVATIONS[op_type]
    attributes = {"hidden_size": HIDDEN, "activations": [name] * count}
    if alpha is not None:
        attributes["activation_alpha"] = [alpha] * count
    if beta is not None:
        attributes["activation_beta"] = [beta] * count
    w, r, b = (value * 0.3 for value in weights(op_type, 1))
    inputs = [normal(3, BATCH, INPUT), w, r, b]
    compare(op_type, inputs, outputs_of(op_type), opset=14, attributes=attributes, rtol=1e-4)


def test_alphas_and_betas_go_to_the_functions_that_take_them():
    attributes = {
        "hidden_size": HIDDEN,
        "activations": ["HardSigmoid", "Tanh", "ScaledTanh"],
        "activation_alpha": [0.3, 0.9],
        "activation_beta": [0.4, 0.8],
    }
    compare("LSTM", [normal(TIME, BATCH, INPUT), *weights("LSTM", 1)], 3, opset=14, attributes=attributes, rtol=1e-4)


@pytest.mark.parametrize("op_type", GATES)
def test_batch_first_layout_is_the_other_one_transposed(op_type):
    x, (w, r, b) = normal(TIME, BATCH, INPUT), weights(op_type, 2)
    states = initial_states(op_type, 2)
    attributes = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    types = [TensorElementType.FLOAT] * outputs_of(op_type)
    y, *finals = run_kernel(op_type, [x, w, r, b, LENGTHS, *states], types, opset=14, attributes=attributes)
    swapped = [state.transpose(1, 0, 2) for state in states]
    inputs = [x.transpose(1, 0, 2), w, r, b, LENGTHS, *swapped]
    results = run_kernel(op_type, inputs, types, opset=14, attributes={**attributes, "layout": 1})
    assert_same(results[0], y.transpose(2, 0, 1, 3), 1e-6, 1e-6)
    for result, final in zip(results[1:], finals, strict=True):
        assert_same(result, final.transpose(1, 0, 2), 1e-6, 1e-6)


@pytest.mark.parametrize("op_type", GATES)
def test_only_the_final_state_may_be_asked_for(op_type):
    inputs = [normal(TIME, BATCH, INPUT), *weights(op_type, 1)]
    compare(op_type, inputs, ["", "y1"], opset=14, attributes={"hidden_size": HIDDEN}, rtol=1e-4)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_of_no_steps_nothing_comes_out_and_states_are_zero(op_type, direction):
    """onnxruntime says so of RNN; its LSTM gives memory nobody wrote, and its GRU ends the process."""
    directions = DIRECTIONS[direction]
    inputs = [normal(0, BATCH, INPUT), *weights(op_type, directions), None, *initial_states(op_type, directions)]
    attributes = {"hidden_size": HIDDEN, "direction": direction}
    if op_type == "RNN":
        compare(op_type, inputs, 2, opset=14, attributes=attributes)
    types = [1] * outputs_of(op_type)
    sequence, *states = run_sdk(*make_model(op_type, inputs, len(types), opset=14, attributes=attributes, output_types=types))
    assert sequence.shape == (0, directions, BATCH, HIDDEN)
    for state in states:
        np.testing.assert_array_equal(state, np.zeros((directions, BATCH, HIDDEN), np.float32))


@pytest.mark.parametrize(("op_type", "opset"), [("RNN", 1), ("GRU", 1), ("GRU", 3), ("LSTM", 1)])
def test_first_versions_compute_the_same(op_type, opset):
    inputs = [normal(TIME, BATCH, INPUT), *weights(op_type, 1)]
    types = [1] * outputs_of(op_type)
    old = run_sdk(*make_model(op_type, inputs, len(types), opset=opset, attributes={"output_sequence": 1}, output_types=types))
    new = run_sdk(*make_model(op_type, inputs, len(types), opset=7, output_types=types))
    for first, later in zip(old, new, strict=True):
        assert_same(first, later, 0, 0)


def test_half_precision_is_computed_in_single():
    inputs = [value.astype(np.float16) for value in (normal(TIME, BATCH, INPUT), *weights("LSTM", 1))]
    types, attributes = [TensorElementType.FLOAT] * 3, {"hidden_size": HIDDEN}
    wide = run_kernel("LSTM", [value.astype(np.float32) for value in inputs], types, opset=14, attributes=attributes)
    narrow = run_sdk(*make_model("LSTM", inputs, 3, opset=14, attributes=attributes, output_types=[10] * 3))
    for result, expected in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(result, expected.astype(np.float16))


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"activations": ["Tanh", "Relu"]}, InvalidGraph),
        ({"activations": ["Swish"]}, InvalidGraph),
        ({"direction": "sideways"}, InvalidGraph),
        ({"direction": "bidirectional"}, InvalidArgument),
    ],
)
def test_what_does_not_fit_is_refused(attributes, error):
    inputs = [normal(TIME, BATCH, INPUT), *weights("RNN", 1)]
    with pytest.raises(error):
        run_kernel("RNN", inputs, [TensorElementType.FLOAT], opset=22, attributes={"hidden_size": HIDDEN, **attributes})
