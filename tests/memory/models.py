"""Models with weights to pack, and what they compute."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)


def product_model(weight=WEIGHT, name="w"):
    """y = x @ w."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weight.shape[1]])],
        [numpy_helper.from_array(weight, name)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branching_model(weight=WEIGHT):
    """y = x @ w + (flag ? x @ w : x @ v), w of the main graph in one branch, v of the other's own."""
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", weight.shape[1]])
    bodies = [
        helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["out"])], "then", [], [output]),
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "v"], ["out"])],
            "else",
            [],
            [output],
            [numpy_helper.from_array(-weight, "v")],
        ),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("If", ["flag"], ["q"], then_branch=bodies[0], else_branch=bodies[1]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weight.shape[0]]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(session, x=X, **feeds):
    return session.run(None, {"x": x, **feeds})[0]


def close_to(actual, wanted):
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
