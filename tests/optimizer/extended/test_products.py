"""Activations, scales and transposes around products and convolutions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, op_types, optimized

RNG = np.random.default_rng(1)
WEIGHT = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
IMAGE = ("x", FLOAT, [1, 3, 8, 8])
ACTIVATIONS = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "Softsign": {},
    "LeakyRelu": {"alpha": 0.3},
    "Elu": {"alpha": 0.7},
    "ThresholdedRelu": {"alpha": 0.4},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"])
@pytest.mark.parametrize("with_bias", [True, False])
def test_conv_activation(activation, with_bias):
    inputs = ["x", "w", "b"] if with_bias else ["x", "w"]
    nodes = [node("Conv", inputs, ["c"], pads=[1] * 4), node(activation, ["c"], ["y"], **ACTIVATIONS[activation])]
    model = build(nodes, [IMAGE], [("y", FLOAT, None)], {"w": WEIGHT, "b": f32([0, 1, 2, 3])})
    assert op_types(model) == ["FusedConv"]
    assert_same_results(model)


@pytest.mark.parametrize("opset", [6, 11, 13])
@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, None), (None, 0.5)])
def test_conv_clip(opset, low, high):
    bounds = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
    if opset < 11:
        clip = node("Clip", ["c"], ["y"], **bounds)
    else:
        clip = node("Clip", ["c", *(name if name in bounds else "" for name in ("min", "max"))], ["y"])
    model = build(
        [node("Conv", ["x", "w"], ["c"]), clip],
        [IMAGE],
        [("y", FLOAT, None)],
        {"w": WEIGHT} | {name: f32(value) for name, value in bounds.items() if opset >= 11},
        opset,
    )
    assert op_types(model) == ["FusedConv"]
    assert_same_results(model)


def test_conv_of_other_activations_is_left():
    model = build([node("Conv", ["x", "w"], ["c"]), node("Elu", ["c"], ["y"])], [IMAGE], [("y", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == ["Conv", "Elu"]


def test_conv_clip_with_a_bound_that_is_fed_is_left():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Clip", ["c", "low"], ["y"])]
    model = build(nodes, [IMAGE, ("low", FLOAT, [])], [("y", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == ["Clip", "Conv"]


@pytest.mark.parametrize("tail", [["c"], ["y"]])
def test_conv_read_twice_is_left(tail):
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"]), node("Neg", tail, ["z"])]
    model = build(nodes, [IMAGE], [("y", FLOAT, None), ("z", FLOAT, None)], {"w": WEIGHT})
    assert ("FusedConv" in op_types(model)) == (tail == ["y"])
    assert_same_results(model)


def test_conv_that_is_an_output_is_left():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    model = build(nodes, [IMAGE], [("y", FLOAT, None), ("c", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == ["Conv", "Relu"]


@pytest.mark.parametrize("order", [["c", "r"], ["r", "c"]])
def test_conv_add_activation(order):
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Add", order, ["s"]), node("Relu", ["s"], ["y"])]
    model = build(nodes, [IMAGE, ("r", FLOAT, [1, 4, 8, 8])], [("y", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == ["FusedConv"]
    assert optimized(model).nodes[0].inputs == ["x", "w", "", "r"]
    assert_same_results(model)


def test_conv_add_of_a_smaller_tensor_is_left():
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Add", ["c", "r"], ["s"]), node("Relu", ["s"], ["y"])]
    model = build(nodes, [IMAGE, ("r", FLOAT, [1, 4, 1, 8])], [("y", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == ["Add", "Conv", "Relu"]


def test_two_convolutions_into_one_sum():
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        node("Conv", ["r", "v"], ["d"], pads=[1] * 4),
        node("Add", ["c", "d"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    model = build(nodes, [IMAGE, ("r", *IMAGE[1:])], [("y", FLOAT, None)], {"w": WEIGHT, "v": WEIGHT + 1})
    assert op_types(model) == ["Conv", "FusedConv"]
    assert_same_results(model)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gemm_activation(activation):
    nodes = [
        node("Gemm", ["x", "w", "b"], ["c"], alpha=0.5, beta=2.0, transB=1),
        node(activation, ["c"], ["y"], **ACTIVATIONS[activation]),
    ]
    constants = {"w": RNG.standard_normal((5, 4)).astype(np.float32), "b": f32(range(5))}
    model = build(nodes, [("x", FLOAT, [3, 4])], [("y", FLOAT, None)], constants)
    assert op_types(model) == ["FusedGemm"]
    assert_same_results(model)


def test_many_fusions_keep_kernels_separate():
    nodes, value = [], "x"
    for index in range(20):
        nodes += [node("Conv", [value, "w"], [f"c{index}"], pads=[1] * 4), node("Relu", [f"c{index}"], [f"r{index}"])]
        value = f"r{index}"
    weight = RNG.standard_normal((3, 3, 3, 3)).astype(np.float32) / 3
    model = build(nodes, [IMAGE], [(value, FLOAT, None)], {"w": weight})
    assert op_types(model) == ["FusedConv"] * 20
    assert_same_results(model)


LEFT, RIGHT = ("a", FLOAT, [2, 3, 4, 5]), ("b", FLOAT, [2, 3, 5, 6])


@pytest.mark.parametrize(
    ("nodes", "alpha"),
    [
        ([node("MatMul", ["a", "b"], ["p"]), node("Mul", ["p", "s"], ["y"])], 0.25),
        ([node("MatMul", ["a", "b"], ["p"]), node("Div", ["p", "s"], ["y"])], 4.0),
        ([node("Mul", ["s", "a"], ["p"]), node("MatMul", ["p", "b"], ["y"])], 0.25),
        ([node("Div", ["b", "s"], ["p"]), node("MatMul", ["a", "p"], ["y"])], 4.0),
        (
            [
                node("Mul", ["a", "s"], ["p"]),
                node("Mul", ["b", "s"], ["q"]),
                node("MatMul", ["p", "q"], ["r"]),
                node("Mul", ["r", "s"], ["y"]),
            ],
            0.25**3,
        ),
    ],
)
def test_matmul_scale(nodes, alpha):
    model = build(nodes, [LEFT, RIGHT], [("y", FLOAT, None)], {"s": f32(0.25)})
    assert op_types(model) == ["FusedMatMul"]
    assert optimized(model).nodes[0].attributes["alpha"] == pytest.approx(alpha)
    assert_same_results(model)


@pytest.mark.parametrize(
    ("operand", "constant"), [("s", f32([0.25, 1, 2, 3, 4, 5])), ("s", f32([[[[[0.25]]]]]))], ids=["vector", "rank"]
)
def test_product_with_more_than_a_number_is_left(operand, constant):
    model = build(
        [node("MatMul", ["a", "b"], ["p"]), node("Mul", ["p", operand], ["y"])],
        [LEFT, RIGHT],
        [("y", FLOAT, None)],
        {"s": constant},
    )
    assert op_types(model) == ["MatMul", "Mul"]
    assert_same_results(model)


def test_number_divided_by_a_product_is_left():
    model = build(
        [node("MatMul", ["a", "b"], ["p"]), node("Div", ["s", "p"], ["y"])], [LEFT, RIGHT], [("y", FLOAT, None)], {"s": f32(2)}
    )
    assert op_types(model) == ["Div", "MatMul"]


def test_integer_product_is_left():
    values = [("a", TensorProto.INT32, [3, 4]), ("b", TensorProto.INT32, [4, 2])]
    nodes = [node("MatMul", ["a", "b"], ["p"]), node("Mul", ["p", "s"], ["y"])]
    model = build(nodes, values, [("y", TensorProto.INT32, None)], {"s": np.array(3, np.int32)})
    assert op_types(model) == ["MatMul", "Mul"]


@pytest.mark.parametrize("transposed", [["a"], ["b"], ["a", "b"]])
def test_matmul_transpose(transposed):
    nodes, operands, values = [], [], []
    for name, element_type, shape in (LEFT, RIGHT):
        if name in transposed:
            nodes.append(node("Transpose", [name], [f"{name}t"], perm=[0, 1, 3, 2]))
        operands.append(f"{name}t" if name in transposed else name)
        values.append((name, element_type, [*shape[:2], shape[3], shape[2]] if name in transposed else shape))
    model = build([*nodes, node("MatMul", operands, ["y"])], values, [("y", FLOAT, None)])
    assert op_types(model) == ["FusedMatMul"]
    assert_same_results(model)


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [1, 0, 3, 2]])
def test_other_transposes_are_left(perm):
    nodes = [node("Transpose", ["a"], ["t"], perm=perm), node("MatMul", ["t", "b"], ["y"])]
    values = [("a", FLOAT, [3, 3, 3, 3]), ("b", FLOAT, [3, 3, 3, 3])]
    model = build(nodes, values, [("y", FLOAT, None)])
    assert "Transpose" in op_types(model)


def test_square_of_a_transpose():
    model = build(
        [node("Transpose", ["a"], ["t"]), node("MatMul", ["t", "t"], ["y"])], [("a", FLOAT, [3, 3])], [("y", FLOAT, None)]
    )
    assert "Transpose" in op_types(model)
    assert_same_results(model)
