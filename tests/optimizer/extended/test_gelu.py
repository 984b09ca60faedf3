"""Gelu and its relatives from their parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, op_types, optimized

SHAPE = [2, 3, 8]
CONSTANTS = {
    "root2": f32(math.sqrt(2)),
    "rsqrt2": f32(math.sqrt(0.5)),
    "one": f32(1),
    "half": f32(0.5),
    "two": f32(2),
    "three": f32(3),
    "cubic": f32(0.044715),
    "scale": f32(math.sqrt(2 / math.pi)),
    "scaled_cubic": f32(0.044715 * math.sqrt(2 / math.pi)),
    "quick": f32(1.702),
    "ones": f32([[[[1]]]]),
    "bias": np.linspace(-1, 1, 8, dtype=np.float32),
}

ERF = {
    "div": [node("Div", ["x", "root2"], ["a"])],
    "mul": [node("Mul", ["rsqrt2", "x"], ["a"])],
}
TAILS = {
    "x first": [node("Mul", ["x", "p"], ["q"]), node("Mul", ["q", "half"], ["y"])],
    "half first": [node("Mul", ["half", "p"], ["q"]), node("Mul", ["q", "x"], ["y"])],
    "halved x": [node("Mul", ["x", "half"], ["q"]), node("Mul", ["q", "p"], ["y"])],
    "halved x, other order": [node("Mul", ["half", "x"], ["q"]), node("Mul", ["p", "q"], ["y"])],
    "divided": [node("Mul", ["x", "p"], ["q"]), node("Div", ["q", "two"], ["y"])],
}


def gelu(nodes, names=("root2", "rsqrt2", "one", "half", "two"), opset=17, shape=SHAPE, **changes):
    constants = {name: CONSTANTS[name] for name in names} | changes
    return build(nodes, [("x", FLOAT, shape)], [("y", FLOAT, None)], constants, opset)


@pytest.mark.parametrize("argument", ERF)
@pytest.mark.parametrize("tail", TAILS)
def test_gelu(argument, tail):
    model = gelu([*ERF[argument], node("Erf", ["a"], ["e"]), node("Add", ["one", "e"], ["p"]), *TAILS[tail]])
    assert op_types(model) == ["Gelu"]
    assert_same_results(model)


def test_gelu_is_not_fused_if_its_name_is_disabled():
    model = gelu([*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]])
    assert "Erf" in op_types(model, disabled=["GeluFusionL2"])


@pytest.mark.parametrize(
    ("name", "changes"),
    [("root2", {"root2": f32(1.5)}), ("one", {"one": f32(2)}), ("half", {"half": f32(0.4)}), ("rank", {"one": f32([[[[1]]]])})],
)
def test_other_constants_are_not_gelu(name, changes):
    model = gelu([*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]], **changes)
    assert "Erf" in op_types(model)
    assert_same_results(model)


def test_gelu_whose_part_is_an_output_is_left():
    nodes = [*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]]
    constants = {name: CONSTANTS[name] for name in ("root2", "one", "half")}
    model = build(nodes, [("x", FLOAT, SHAPE)], [("y", FLOAT, None), ("e", FLOAT, None)], constants)
    assert "Erf" in op_types(model)


def test_gelu_whose_part_is_read_elsewhere_is_left():
    nodes = [*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]]
    constants = {name: CONSTANTS[name] for name in ("root2", "one", "half")}
    model = build([*nodes, node("Neg", ["q"], ["z"])], [("x", FLOAT, SHAPE)], [("y", FLOAT, None), ("z", FLOAT, None)], constants)
    assert "Erf" in op_types(model)
    assert_same_results(model)


def test_gelu_of_another_factor_is_left():
    nodes = [*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"])]
    nodes += [node("Mul", ["z", "p"], ["q"]), node("Mul", ["q", "half"], ["y"])]
    constants = {name: CONSTANTS[name] for name in ("root2", "one", "half")}
    model = build(nodes, [("x", FLOAT, SHAPE), ("z", FLOAT, SHAPE)], [("y", FLOAT, None)], constants)
    assert "Erf" in op_types(model)
    assert_same_results(model)


def test_gelu_in_a_body():
    nodes = [*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]]
    body = helper.make_graph(nodes, "then", [], [helper.make_tensor_value_info("y", FLOAT, SHAPE)])
    other = helper.make_graph([node("Identity", ["x"], ["n"])], "else", [], [helper.make_tensor_value_info("n", FLOAT, SHAPE)])
    model = build(
        [node("If", ["c"], ["out"], then_branch=body, else_branch=other)],
        [("c", TensorProto.BOOL, []), ("x", FLOAT, SHAPE)],
        [("out", FLOAT, SHAPE)],
        {name: CONSTANTS[name] for name in ("root2", "one", "half")},
    )
    branch = optimized(model).nodes[0].subgraphs["then_branch"]
    assert [inner.op_type for inner in branch.nodes] == ["Gelu"]
    assert_same_results(model, {"c": np.array(True), "x": np.ones(SHAPE, np.float32)})


def test_gelu_is_left_if_a_body_reads_its_part():
    nodes = [*ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]]
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Neg", ["q"], [name])], name, [], [helper.make_tensor_value_info(name, FLOAT, SHAPE)]
        )
        for name in ("then", "else")
    }
    model = build(
        [*nodes, node("If", ["c"], ["out"], **branches)],
        [("c", TensorProto.BOOL, []), ("x", FLOAT, SHAPE)],
        [("y", FLOAT, SHAPE), ("out", FLOAT, SHAPE)],
        {name: CONSTANTS[name] for name in ("root2", "one", "half")},
    )
    assert "Erf" in op_types(model)


TANH = {
    "power": [
        node("Pow", ["x", "three"], ["c"]),
        node("Mul", ["c", "cubic"], ["d"]),
        node("Add", ["x", "d"], ["s"]),
        node("Mul", ["s", "scale"], ["a"]),
    ],
    "products": [
        node("Mul", ["x", "x"], ["c"]),
        node("Mul", ["c", "x"], ["d"]),
        node("Mul", ["cubic", "d"], ["f"]),
        node("Add", ["f", "x"], ["s"]),
        node("Mul", ["scale", "s"], ["a"]),
    ],
    "factored": [
        node("Mul", ["x", "scale"], ["c"]),
        node("Mul", ["x", "cubic"], ["d"]),
        node("Mul", ["d", "x"], ["f"]),
        node("Add", ["f", "one"], ["s"]),
        node("Mul", ["c", "s"], ["a"]),
    ],
}


@pytest.mark.parametrize("argument", TANH)
@pytest.mark.parametrize("tail", TAILS)
def test_fast_gelu(argument, tail):
    nodes = [*TANH[argument], node("Tanh", ["a"], ["t"]), node("Add", ["t", "one"], ["p"]), *TAILS[tail]]
    model = gelu(nodes, ("one", "half", "two", "three", "cubic", "scale"))
    assert op_types(model) == ["FastGelu"]
    assert_same_results(model)


def test_tanh_of_another_polynomial_is_left():
    nodes = [*TANH["power"], node("Tanh", ["a"], ["t"]), node("Add", ["t", "one"], ["p"]), *TAILS["x first"]]
    model = gelu(nodes, ("one", "half", "three", "cubic"), scale=f32(0.9))
    assert "Tanh" in op_types(model)
    assert_same_results(model)


def test_fast_gelu_in_half_precision():
    nodes = [*TANH["power"], node("Tanh", ["a"], ["t"]), node("Add", ["t", "one"], ["p"]), *TAILS["x first"]]
    constants = {name: CONSTANTS[name].astype(np.float16) for name in ("one", "half", "three", "cubic", "scale")}
    model = build(nodes, [("x", TensorProto.FLOAT16, SHAPE)], [("y", TensorProto.FLOAT16, None)], constants)
    assert op_types(model) == ["Cast", "Cast", "FastGelu"]
    assert_same_results(model, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(("bias_first", "opset"), [(True, 17), (False, 17), (False, 20)])
def test_bias_gelu(bias_first, opset):
    add = node("Add", ["bias", "z"] if bias_first else ["z", "bias"], ["x"])
    if opset >= 20:
        nodes = [add, node("Gelu", ["x"], ["y"])]
    else:
        nodes = [add, *ERF["div"], node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]), *TAILS["x first"]]
    constants = {name: CONSTANTS[name] for name in ("root2", "one", "half", "bias")}
    model = build(nodes, [("z", FLOAT, SHAPE)], [("y", FLOAT, None)], constants, opset)
    assert op_types(model) == ["BiasGelu"]
    assert_same_results(model)


def test_sum_of_two_tensors_is_no_bias():
    nodes = [node("Add", ["z", "w"], ["x"]), node("Gelu", ["x"], ["y"])]
    model = build(nodes, [("z", FLOAT, SHAPE), ("w", FLOAT, SHAPE)], [("y", FLOAT, None)], {}, 20)
    assert op_types(model) == ["Add", "Gelu"]


def test_gelu_is_approximated_on_request_only():
    model = gelu([node("Gelu", ["x"], ["y"], domain="com.microsoft")])
    key = {"optimization.enable_gelu_approximation": "1"}
    assert op_types(model) == ["Gelu"]
    assert op_types(model, config=key) == ["FastGelu"]
    assert_same_results(model, config=key, atol=1e-3)


@pytest.mark.parametrize("order", [["x", "s"], ["s", "x"]])
@pytest.mark.parametrize("scaled", [True, False])
def test_quick_gelu(order, scaled):
    nodes = [node("Mul", ["x", "quick"], ["a"])] if scaled else []
    nodes += [node("Sigmoid", ["a" if scaled else "x"], ["s"]), node("Mul", order, ["y"])]
    model = gelu(nodes, ("quick",))
    assert op_types(model) == ["QuickGelu"]
    assert_same_results(model)


def test_quick_gelu_is_exact_far_below_zero():
    model = gelu([node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])], (), shape=[6])
    assert op_types(model) == ["QuickGelu"]
    # ONNX Runtime's own sigmoid is only exact to 1e-7 there.
    feeds = {"x": f32([-80, -40, -20, -15, -10, 90])}
    assert_same_results(model, feeds, rtol=1e-5, atol=0, against_onnxruntime=False)


def test_gate_of_another_value_is_no_quick_gelu():
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["z", "s"], ["y"])]
    model = build(nodes, [("x", FLOAT, SHAPE), ("z", FLOAT, SHAPE)], [("y", FLOAT, None)])
    assert op_types(model) == ["Mul", "Sigmoid"]
