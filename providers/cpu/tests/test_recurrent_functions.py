"""Recurrent layers of other activations than the usual ones, with clipped sums and with peepholes, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

LAYERS = {
    "clipped LSTM with peepholes": ("LSTM", {"clip": 0.4}, True),
    "LSTM with peepholes": ("LSTM", {}, True),
    "Keras' LSTM": (
        "LSTM",
        {"activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.2], "activation_beta": [0.4]},
        False,
    ),
    "clipped GRU": ("GRU", {"clip": 0.3}, False),
    "clipped GRU that resets last": ("GRU", {"clip": 0.3, "linear_before_reset": 1}, False),
    "GRU of lines": (
        "GRU",
        {"activations": ["HardSigmoid", "Affine"], "activation_alpha": [0.3, 0.5], "activation_beta": [0.4, 0.1]},
        False,
    ),
    "clipped RNN": ("RNN", {"clip": 0.2}, False),
    "clipped RNN of Relu": ("RNN", {"clip": 0.2, "activations": ["Relu"]}, False),
}


def model_of(op_type, attributes, inputs, peepholes, direction):
    """A model of one layer; weights are constants."""
    names = ["x", "w", "r", "b", "lengths", "h", "c"][: len(inputs)]
    constants = {name: array for name, array in zip(names, inputs, strict=True) if name in "wrb"}
    if peepholes is not None:
        names, constants = [*names, "p"], {**constants, "p": peepholes}
    outputs = ["y", "last", *(["cells"] if op_type == "LSTM" else [])]
    node = helper.make_node(op_type, names, outputs, direction=direction, hidden_size=inputs[2].shape[2], **attributes)
    kinds = {"lengths": TensorProto.INT32}
    fed = [name for name in names if name not in constants]
    values = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in fed]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(
        [node], "layer", values, results, [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


@pytest.mark.parametrize(
    ("direction", "sizes", "hidden"),
    [
        ("reverse", (5, 3, 4), 40),
        ("bidirectional", (30, 1, 8), 33),
        ("bidirectional", (3, 2, 4), 260),
        ("reverse", (2, 2, 3), 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_as_onnxruntime_computes_them(name, direction, sizes, hidden, recurrent_inputs):
    op_type, attributes, has_peepholes = LAYERS[name]
    directions = 2 if direction == "bidirectional" else 1
    inputs = recurrent_inputs(op_type, directions, sizes, hidden)
    inputs[4] = (np.arange(sizes[1], dtype=np.int32) + 1) % sizes[0] + 1
    rng = np.random.default_rng(1)
    peepholes = rng.standard_normal((directions, 3 * hidden)).astype(np.float32) if has_peepholes else None
    repeated = {key: value * directions if isinstance(value, list) else value for key, value in attributes.items()}
    model = model_of(op_type, repeated, inputs, peepholes, direction)
    feeds = {"x": inputs[0], "lengths": inputs[4], "h": inputs[5], **({"c": inputs[6]} if op_type == "LSTM" else {})}
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        for got, wanted in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)
