"""Convolutions whose weight each run computes, in whatever order its axes lie, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort

IN_ORDER, TURNED, LAST = (0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 0, 1)


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(op_type, weight, perm, **attributes):
    """Scales and turns a weight, convolves with it, and pads the result, which so stays in the program."""
    given = [weight[perm.index(axis)] for axis in range(4)]
    nodes = [
        helper.make_node("Mul", ["w", "s"], ["scaled"]),
        helper.make_node("Transpose", ["scaled"], ["turned"], perm=perm),
        helper.make_node(op_type, ["x", "turned"], ["h"], **attributes),
        helper.make_node("Pad", ["h"], ["y"], pads=[0, 0, 1, 1] * 2),
    ]
    values = {"x": [None] * 4, "w": given, "s": [1]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()]
    fetched = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph(nodes, "graph", inputs, [fetched])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    return model.SerializeToString(), given


@pytest.mark.parametrize("perm", [IN_ORDER, TURNED, LAST], ids=str)
@pytest.mark.parametrize(
    ("op_type", "weight", "channels", "attributes"),
    [
        ("Conv", (64, 48, 3, 3), 48, {"pads": [1] * 4}),
        ("Conv", (48, 16, 3, 3), 64, {"group": 4}),
        ("Conv", (64, 1, 3, 3), 64, {"group": 64}),
        ("ConvTranspose", (64, 48, 3, 3), 64, {"strides": [2, 2]}),
        ("ConvTranspose", (64, 12, 3, 3), 64, {"strides": [2, 2], "group": 4}),
    ],
    ids=str,
)
def test_computed_weights(op_type, weight, channels, attributes, perm):
    model, given = model_of(op_type, weight, perm, **attributes)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for run in range(5):
        feeds = {"x": random(1, channels, 20, 22, seed=run), "w": random(*given, seed=run), "s": random(1, seed=run)}
        (found,), (expected,) = session.run(None, feeds), other.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())
