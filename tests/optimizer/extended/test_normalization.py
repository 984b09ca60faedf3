"""Layer normalization from its parts, and sums before it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, op_types, optimized

RNG = np.random.default_rng(2)
SHAPE = [2, 3, 8]
HALF = TensorProto.FLOAT16
SCALE, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(2))
CONSTANTS = {"scale": SCALE, "bias": BIAS, "two": f32(2), "one": f32(1), "eps": f32(1e-3), "axes": np.array([-1])}


def mean(source, target, opset, axes=(-1,), **attributes):
    if opset < 18:
        return node("ReduceMean", [source], [target], axes=list(axes), **attributes)
    return node("ReduceMean", [source, "axes"], [target], **attributes)


def layer_norm(opset=17, axes=(-1,), square="pow", twice=False, bias=True, keepdims=1):
    nodes = [mean("x", "m", opset, axes, keepdims=keepdims), node("Sub", ["x", "m"], ["d"])]
    numerator = "d"
    if twice:
        nodes.append(node("Sub", ["x", "m"], ["d2"]))
        numerator = "d2"
    nodes += [
        node("Pow", ["d", "two"], ["p"]) if square == "pow" else node("Mul", ["d", "d"], ["p"]),
        mean("p", "v", opset, axes),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["r"]),
        node("Div", [numerator, "r"], ["n"]),
        node("Mul", ["n", "scale"], ["w" if bias else "y"]),
    ]
    return [*nodes, node("Add", ["w", "bias"], ["y"])] if bias else nodes


def model_of(nodes, opset=17, shape=SHAPE, outputs=("y",), inputs=("x",), element_type=FLOAT, **changes):
    values = [(name, element_type, shape) for name in inputs]
    return build(nodes, values, [(name, element_type, None) for name in outputs], CONSTANTS | changes, opset)


@pytest.mark.parametrize("opset", [11, 17, 18])
@pytest.mark.parametrize("form", [{}, {"square": "mul"}, {"twice": True}, {"bias": False}])
def test_layer_norm(opset, form):
    model = model_of(layer_norm(opset, **form), opset)
    assert op_types(model) == ["LayerNormalization"]
    assert_same_results(model)


def test_layer_norm_over_a_positive_axis():
    model = model_of(layer_norm(axes=[2]))
    assert op_types(model) == ["LayerNormalization"]
    assert_same_results(model)


def test_layer_norm_over_two_axes():
    scale = RNG.standard_normal((3, 8)).astype(np.float32)
    model = model_of(layer_norm(axes=[-2, -1]), scale=scale, bias=scale + 1)
    assert op_types(model) == ["LayerNormalization"]
    assert optimized(model).nodes[0].attributes["axis"] == -2
    assert_same_results(model)


@pytest.mark.parametrize(
    "change",
    [
        {"axes": [1]},
        {"shape": [2, 8, 8], "keepdims": 0},
        {"two": f32(3)},
        {"scale": f32([1]), "bias": f32([2])},
        {"scale": np.ones((2, 1, 8), np.float32)},
    ],
    ids=["inner axis", "dropped axis", "cube", "number", "tensor"],
)
def test_what_is_no_layer_norm(change):
    form = {name: change.pop(name) for name in ("axes", "keepdims") if name in change}
    if form.get("keepdims") == 0:
        form["axes"] = [-2]
    model = model_of(layer_norm(**form), **change)
    assert "Sqrt" in op_types(model)


def test_layer_norm_whose_mean_is_an_output_is_left():
    assert "LayerNormalization" not in op_types(model_of(layer_norm(), outputs=("y", "m")))


AROUND_FLOAT = ["Cast", "Cast"]
"""Of the input and the output: the provider computes in float, as it has the small constants."""


def test_layer_norm_of_half_precision_computed_in_float():
    nodes = [node("Cast", ["h"], ["x"], to=FLOAT), *layer_norm()[:-2]]
    nodes += [node("Cast", ["n"], ["c"], to=HALF), node("Mul", ["c", "scale"], ["w"]), node("Add", ["w", "bias"], ["y"])]
    parameters = {"scale": SCALE.astype(np.float16), "bias": BIAS.astype(np.float16)}
    model = build(nodes, [("h", HALF, SHAPE)], [("y", HALF, None)], CONSTANTS | parameters)
    assert op_types(model) == [*AROUND_FLOAT, "LayerNormalization"]
    assert_same_results(model, rtol=5e-3, atol=5e-3)


def root_mean_square(division="div", square="pow"):
    tail = {
        "div": [node("Div", ["x", "r"], ["n"])],
        "reciprocal": [node("Reciprocal", ["r"], ["i"]), node("Mul", ["i", "x"], ["n"])],
        "one over": [node("Div", ["one", "r"], ["i"]), node("Mul", ["x", "i"], ["n"])],
    }
    return [
        node("Pow", ["x", "two"], ["p"]) if square == "pow" else node("Mul", ["x", "x"], ["p"]),
        mean("p", "v", 17),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["r"]),
        *tail[division],
    ]


@pytest.mark.parametrize("division", ["div", "reciprocal", "one over"])
@pytest.mark.parametrize("square", ["pow", "mul"])
def test_simplified_layer_norm(division, square):
    model = model_of([*root_mean_square(division, square), node("Mul", ["scale", "n"], ["y"])])
    assert op_types(model) == ["SimplifiedLayerNormalization"]
    assert_same_results(model)


def test_simplified_layer_norm_of_half_precision_computed_in_float():
    nodes = [node("Cast", ["h"], ["x"], to=FLOAT), *root_mean_square()]
    nodes += [node("Cast", ["n"], ["c"], to=HALF), node("Mul", ["c", "scale"], ["y"])]
    model = build(nodes, [("h", HALF, SHAPE)], [("y", HALF, None)], CONSTANTS | {"scale": SCALE.astype(np.float16)})
    assert op_types(model) == [*AROUND_FLOAT, "SimplifiedLayerNormalization"]
    assert_same_results(model, rtol=5e-3, atol=5e-3)


NORMALIZED = {
    "LayerNormalization": node("LayerNormalization", ["s", "scale", "bias"], ["y"], epsilon=1e-3),
    "SimplifiedLayerNormalization": node("SimplifiedLayerNormalization", ["s", "scale"], ["y"], epsilon=1e-3, axis=-1),
}
SKIP = {"LayerNormalization": "SkipLayerNormalization", "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization"}


def skip_model(nodes, outputs=("y",), skip_shape=SHAPE, **changes):
    values = [("x", FLOAT, SHAPE), ("z", FLOAT, skip_shape)]
    return build(nodes, values, [(name, FLOAT, SHAPE) for name in outputs], CONSTANTS | changes)


@pytest.mark.parametrize("operator", NORMALIZED)
def test_skip_layer_norm(operator):
    model = skip_model([node("Add", ["x", "z"], ["s"]), NORMALIZED[operator]])
    assert op_types(model) == [SKIP[operator]]
    assert_same_results(model)


@pytest.mark.parametrize("operator", NORMALIZED)
@pytest.mark.parametrize("order", [["t", "z"], ["z", "t"]])
def test_skip_layer_norm_with_bias(operator, order):
    model = skip_model([node("Add", ["x", "vector"], ["t"]), node("Add", order, ["s"]), NORMALIZED[operator]], vector=SCALE + 3)
    assert op_types(model) == [SKIP[operator]]
    assert "vector" in optimized(model).nodes[0].inputs
    assert_same_results(model)


@pytest.mark.parametrize("operator", NORMALIZED)
def test_skip_layer_norm_of_one_value_twice_leaves_its_bias_alone(operator):
    model = skip_model(
        [node("Add", ["x", "vector"], ["t"]), node("Add", ["t", "t"], ["s"]), NORMALIZED[operator]], vector=SCALE + 3
    )
    assert op_types(model) == ["Add", SKIP[operator]]
    assert_same_results(model)


@pytest.mark.parametrize("operator", NORMALIZED)
@pytest.mark.parametrize("is_output", [True, False])
def test_sum_read_elsewhere_is_the_last_output(operator, is_output):
    nodes = [node("Add", ["x", "z"], ["s"]), node("Neg", ["s"], ["q"]), NORMALIZED[operator]]
    model = skip_model(nodes, ("y", "q", "s") if is_output else ("y", "q"))
    assert op_types(model) == ["Neg", SKIP[operator]]
    assert_same_results(model)


def test_skip_of_another_shape_is_left():
    model = skip_model([node("Add", ["x", "z"], ["s"]), NORMALIZED["LayerNormalization"]], skip_shape=[1, 1, 8])
    assert op_types(model) == ["Add", "LayerNormalization"]


def test_skip_layer_norm_over_more_axes_is_left():
    normalization = node("LayerNormalization", ["s", "scale", "bias"], ["y"], axis=1)
    parameters = {"scale": np.ones((3, 8), np.float32), "bias": np.ones((3, 8), np.float32)}
    model = skip_model([node("Add", ["x", "z"], ["s"]), normalization], **parameters)
    assert op_types(model) == ["Add", "LayerNormalization"]
