"""Gradient of ai.onnx.preview.training against central differences in float64."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort

TRAINING = "ai.onnx.preview.training"


def _model(nodes, shapes, outputs, gradient, opset=17):
    inputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in shapes.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs]
    graph = helper.make_graph([*nodes, gradient], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(TRAINING, 1)])
    model.ir_version = 8
    return model.SerializeToString()


def _check(nodes, feeds, opset=17, xs=None):
    """The sum of y is what is differentiated: its gradient is the Gradient node's output."""
    xs = xs or list(feeds)
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    zs = [name for name in feeds if name not in xs]
    gradients = [f"d_{name}" for name in xs]
    node = helper.make_node("Gradient", [*xs, *zs], gradients, domain=TRAINING, xs=xs, **({"zs": zs} if zs else {}), y="y")
    session = ort.InferenceSession(_model(nodes, shapes, ["y", *gradients], node, opset))
    _, *found = session.run(None, feeds)
    step = 1e-6
    for name, gradient in zip(xs, found, strict=True):
        expected = np.empty_like(feeds[name])
        for position in np.ndindex(feeds[name].shape):
            sides = []
            for sign in (1, -1):
                moved = {key: array.copy() for key, array in feeds.items()}
                moved[name][position] += sign * step
                sides.append(session.run(["y"], moved)[0].sum())
            expected[position] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7, err_msg=name)


def _values(*shape, seed=0, low=0.3, high=1.7):
    return np.random.default_rng(seed).uniform(low, high, shape)


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (4, 1, 3))])
def test_binary(op_type, shapes):
    _check([helper.make_node(op_type, ["a", "b"], ["y"])], {"a": _values(*shapes[0]), "b": _values(*shapes[1], seed=1)})


@pytest.mark.parametrize("op_type", ["Relu", "Sigmoid", "Tanh", "Sqrt", "Neg", "Exp", "Log", "Sin", "Cos", "Abs", "Identity"])
def test_unary(op_type):
    _check([helper.make_node(op_type, ["a"], ["h"]), helper.make_node("Mul", ["h", "h"], ["y"])], {"a": _values(2, 3)})


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_layer(opset):
    axes = {"axes": [1]} if opset < 18 else {}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Tanh", ["q"], ["t"]),
        helper.make_node("ReduceMean", ["t"], ["y"], keepdims=0, **axes),
    ]
    _check(nodes, {"x": _values(4, 3), "w": _values(3, 2, seed=1), "b": _values(2, seed=2)}, opset, xs=["w", "b"])


def test_gemm_softmax_and_shapes():
    nodes = [
        helper.make_node("Gemm", ["a", "b", "c"], ["g"], transA=1, transB=1, alpha=0.5, beta=2.0),
        helper.make_node("Softmax", ["g"], ["s"], axis=-1),
        helper.make_node("Transpose", ["s"], ["t"]),
        helper.make_node("Mul", ["t", "t"], ["y"]),
    ]
    _check(nodes, {"a": _values(3, 2), "b": _values(4, 3, seed=1), "c": _values(4, seed=2)})


def test_an_operator_without_a_rule_is_named():
    nodes = [helper.make_node("Erf", ["a"], ["y"], name="error_function")]
    with pytest.raises(ort.api.InvalidGraph, match=r"Erf.*error_function.*has no gradient"):
        _check(nodes, {"a": _values(2)})


def test_a_missing_target_is_named():
    node = helper.make_node("Gradient", ["a"], ["d"], domain=TRAINING, xs=["a"], y="nothing")
    model = _model([helper.make_node("Exp", ["a"], ["y"])], {"a": [2]}, ["y", "d"], node)
    with pytest.raises(ort.api.InvalidGraph, match="'nothing'"):
        ort.InferenceSession(model)
