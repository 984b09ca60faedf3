"""Results of programs whose values lie in fixed buffers: views made once, small results handed out as copies."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk


def session_of(nodes, outputs, shape):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [helper.make_tensor("axis", TensorProto.INT64, [1], [0])]
    graph = helper.make_graph(nodes, "buffers", inputs, values, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort_sdk.InferenceSession(onnx.shape_inference.infer_shapes(model).SerializeToString())


NODES = [
    helper.make_node("Neg", ["x"], ["a"]),
    helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
    helper.make_node("Unsqueeze", ["b", "axis"], ["c"]),
    helper.make_node("Abs", ["c"], ["d"]),
    helper.make_node("Squeeze", ["d", "axis"], ["e"]),
]


@pytest.mark.parametrize("outputs", [["e"], ["d"], ["a", "d"], ["b", "d"], ["a", "b", "c", "d", "e"], ["c", "e"]])
@pytest.mark.parametrize("size", [3, 300])
def test_results_stay(outputs, size):
    session = session_of(NODES, outputs, [size, 4])
    kept = []
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((size, 4)).astype(np.float32)
        everything = {"a": -x, "b": -x.T, "c": -x.T[None], "d": abs(x.T)[None], "e": abs(x.T)}
        kept.append((session.run(outputs, {"x": x}), [everything[name] for name in outputs]))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_results_are_the_users_to_write():
    session = session_of(NODES, ["a", "d"], [3, 4])
    x = np.ones((3, 4), np.float32)
    for _ in range(4):
        for result in session.run(None, {"x": x}):
            result.fill(7)
    np.testing.assert_array_equal(session.run(None, {"x": x})[1], np.ones((1, 4, 3), np.float32))
