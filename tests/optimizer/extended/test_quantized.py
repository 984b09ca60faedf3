"""QDQ models as integer ones, and products of dynamically quantized matrices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, op_types

RNG = np.random.default_rng(3)
UINT8, INT8 = TensorProto.UINT8, TensorProto.INT8
CONSTANTS = {
    "xs": f32(0.02),
    "xz": np.array(120, np.uint8),
    "zs": f32(0.03),
    "zz": np.array(100, np.uint8),
    "ys": f32(0.05),
    "yz": np.array(10, np.uint8),
    "lowest": np.array(0, np.uint8),
    "ws": f32(0.01),
    "wz": np.array(0, np.int8),
    "bz": np.array(0, np.int32),
}
DISABLED = {"session.disable_quant_qdq": "1"}


def dq(value, parameters="x", **attributes):
    return node("DequantizeLinear", [value, f"{parameters}s", f"{parameters}z"], [f"{value}f"], **attributes)


def q(value="r", result="y", parameters="y"):
    return node("QuantizeLinear", [value, f"{parameters}s", f"{parameters}z"], [result])


def model_of(nodes, inputs, outputs=(("y", UINT8, None),), opset=17, **constants):
    return build(nodes, inputs, outputs, CONSTANTS | constants, opset)


def assert_integers(model, expected, steps=1):
    """Results are ONNX Runtime's, and at most a rounding step from the unfused ones."""
    import onnxruntime

    from tests.optimizer.extended.fused_graph import feeds_of, open_session

    assert op_types(model) == sorted(expected)
    feeds = feeds_of(model)
    options = onnxruntime.SessionOptions()
    wanted = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    session, plain = open_session(model, 2), open_session(model, 0)
    for _ in range(2):
        result = session.run(None, feeds)[0]
        np.testing.assert_array_equal(result, wanted)
        assert np.abs(result.astype(int) - plain.run(None, feeds)[0].astype(int)).max() <= steps


WEIGHT = RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8)
IMAGE = ("x", UINT8, [1, 3, 8, 8])


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_conv(per_channel, with_bias):
    parameters = {"ws": f32([0.01, 0.02, 0.03, 0.005]), "wz": np.zeros(4, np.int8)} if per_channel else {}
    scale = parameters.get("ws", CONSTANTS["ws"]) * CONSTANTS["xs"]
    nodes = [dq("x"), dq("w", "w", **({"axis": 0} if per_channel else {}))]
    bias = {"b": np.array([100, -50, 30, 7], np.int32), "bs": scale, "bz": np.zeros(scale.shape, np.int32)} if with_bias else {}
    if with_bias:
        nodes.append(dq("b", "b", **({"axis": 0} if per_channel else {})))
    nodes += [node("Conv", ["xf", "wf", *(["bf"] if with_bias else [])], ["r"], pads=[1] * 4, strides=[2, 2]), q()]
    assert_integers(model_of(nodes, [IMAGE], w=WEIGHT, **parameters, **bias), ["QLinearConv"])


def test_conv_of_a_bias_with_another_scale_is_left():
    nodes = [dq("x"), dq("w", "w"), dq("b", "b"), node("Conv", ["xf", "wf", "bf"], ["r"]), q()]
    model = model_of(nodes, [IMAGE], w=WEIGHT, b=np.ones(4, np.int32), bs=f32(0.5))
    assert "QLinearConv" not in op_types(model)


def test_qdq_nodes_stay_if_disabled():
    nodes = [dq("x"), dq("w", "w"), node("Conv", ["xf", "wf"], ["r"]), q()]
    model = model_of(nodes, [IMAGE], w=WEIGHT)
    assert "QLinearConv" not in op_types(model, config=DISABLED)
    assert "QLinearConv" not in op_types(model, disabled=["QDQSelectorActionTransformer"])


def test_conv_whose_float_result_is_an_output_is_left():
    nodes = [dq("x"), dq("w", "w"), node("Conv", ["xf", "wf"], ["r"]), q()]
    model = model_of(nodes, [IMAGE], [("y", UINT8, None), ("r", FLOAT, None)], w=WEIGHT)
    assert "QLinearConv" not in op_types(model)


def test_relu_before_quantization_goes_with_the_convolution():
    nodes = [dq("x"), dq("w", "w"), node("Conv", ["xf", "wf"], ["c"]), node("Relu", ["c"], ["r"]), q()]
    assert_integers(model_of(nodes, [IMAGE], w=WEIGHT, yz=CONSTANTS["lowest"]), ["QLinearConv"])
    assert "QLinearConv" not in op_types(model_of(nodes, [IMAGE], w=WEIGHT))


def test_residual_block():
    """Two convolutions, a sum, pooling: integers throughout, each dequantizer shared where the block forks."""
    nodes = [
        dq("x"),
        dq("w", "w"),
        node("Conv", ["xf", "wf"], ["c1"], pads=[1] * 4),
        node("Relu", ["c1"], ["r1"]),
        q("r1", "q1", "a"),
        dq("q1", "a"),
        dq("v", "w"),
        node("Conv", ["q1f", "vf"], ["c2"], pads=[1] * 4),
        q("c2", "q2", "z"),
        dq("q2", "z"),
        node("Add", ["q2f", "q1f"], ["s"]),
        q("s", "q3", "z"),
        dq("q3", "z"),
        node("MaxPool", ["q3f"], ["p"], kernel_shape=[2, 2]),
        q("p", "q4", "z"),
        dq("q4", "z"),
        node("GlobalAveragePool", ["q4f"], ["r"]),
        q("r", "y", "z"),
    ]
    constants = {"w": WEIGHT, "v": RNG.integers(-9, 9, (4, 4, 3, 3)).astype(np.int8)}
    model = model_of(nodes, [IMAGE], az=CONSTANTS["lowest"], **{"as": f32(0.03)}, **constants)
    assert_integers(model, ["QLinearConv", "QLinearConv", "QLinearAdd", "MaxPool", "QLinearGlobalAveragePool"], steps=2)


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_binary(operator):
    nodes = [dq("x"), dq("z", "z"), node(operator, ["xf", "zf"], ["r"]), q()]
    assert_integers(model_of(nodes, [IMAGE, ("z", UINT8, [3, 1, 8])]), [f"QLinear{operator}"])


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Sigmoid", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("GlobalAveragePool", {}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("Softmax", {"axis": -1}),
    ],
)
def test_unary(operator, attributes):
    nodes = [dq("x"), node(operator, ["xf"], ["r"], **attributes), q()]
    assert_integers(model_of(nodes, [IMAGE], ys=f32(1 / 256), yz=CONSTANTS["lowest"]), [f"QLinear{operator}"])


def test_unary_of_other_types_is_left():
    nodes = [dq("x"), node("Sigmoid", ["xf"], ["r"]), q()]
    model = model_of(nodes, [IMAGE], [("y", INT8, None)], yz=np.array(0, np.int8))
    assert op_types(model) == ["DequantizeLinear", "QuantizeLinear", "Sigmoid"]


def test_concat():
    nodes = [dq("x"), dq("z", "z"), node("Concat", ["xf", "zf"], ["r"], axis=1), q()]
    assert_integers(model_of(nodes, [IMAGE, ("z", UINT8, [1, 2, 8, 8])]), ["QLinearConcat"])


MOVES = {
    "Transpose": (["xf"], {"perm": [0, 2, 3, 1]}),
    "Reshape": (["xf", "shape"], {}),
    "MaxPool": (["xf"], {"kernel_shape": [2, 2]}),
    "Gather": (["xf", "indices"], {"axis": 1}),
}


@pytest.mark.parametrize("operator", MOVES)
def test_moves(operator):
    inputs, attributes = MOVES[operator]
    constants = {"shape": np.array([3, -1]), "indices": np.array([2, 0])}
    nodes = [dq("x"), node(operator, inputs, ["r"], **attributes), q(parameters="x")]
    assert_integers(model_of(nodes, [IMAGE], **constants), [operator], steps=0)
    other = model_of([*nodes[:2], q(parameters="z")], [IMAGE], **constants)
    assert "DequantizeLinear" in op_types(other)


MATRIX = ("x", UINT8, [3, 6])
FACTOR = RNG.integers(-127, 127, (6, 4)).astype(np.int8)


def test_matmul():
    nodes = [dq("x"), dq("w", "w"), node("MatMul", ["xf", "wf"], ["r"]), q()]
    assert_integers(model_of(nodes, [MATRIX], w=FACTOR), ["QLinearMatMul"])


def test_matmul_with_a_float_result():
    nodes = [dq("x"), dq("w", "w"), node("MatMul", ["xf", "wf"], ["y"])]
    model = model_of(nodes, [MATRIX], [("y", FLOAT, None)], w=FACTOR)
    assert op_types(model) == ["MatMulIntegerToFloat"]
    assert_same_results(model)


def test_gemm():
    nodes = [dq("x"), dq("w", "w"), dq("b", "b"), node("Gemm", ["xf", "wf", "bf"], ["r"]), q()]
    scale = CONSTANTS["xs"] * CONSTANTS["ws"]
    model = model_of(nodes, [MATRIX], w=FACTOR, b=np.array([5, -6, 7, 1000], np.int32), bs=scale)
    assert_integers(model, ["QGemm"])


def dynamic(with_bias=False, swapped=False):
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "zp"]),
        node("MatMulInteger", ["q", "w", "zp", "wz"], ["i"]),
        node("Cast", ["i"], ["c"], to=FLOAT),
        node("Mul", ["ws", "s"] if swapped else ["s", "ws"], ["t"]),
        node("Mul", ["c", "t"], ["m" if with_bias else "y"]),
    ]
    return [*nodes, node("Add", ["m", "bias"], ["y"])] if with_bias else nodes


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("swapped", [True, False])
def test_dynamic_quantize_matmul(with_bias, swapped):
    constants = CONSTANTS | {"w": FACTOR, "bias": f32([1, 2, 3, 4])}
    model = build(dynamic(with_bias, swapped), [("x", FLOAT, [3, 6])], [("y", FLOAT, None)], constants)
    assert op_types(model) == ["DynamicQuantizeMatMul"]
    assert_same_results(model)


def test_matmul_integer_to_float_of_shared_values():
    nodes = [*dynamic(), node("Cast", ["q"], ["z"], to=FLOAT)]
    model = build(nodes, [("x", FLOAT, [3, 6])], [("y", FLOAT, None), ("z", FLOAT, None)], CONSTANTS | {"w": FACTOR})
    assert op_types(model) == ["Cast", "DynamicQuantizeLinear", "MatMulIntegerToFloat"]
    assert_same_results(model)


def by_hand():
    """How a range is quantized by models of operator sets that have no DynamicQuantizeLinear."""
    return [
        node("ReduceMax", ["x"], ["high"], keepdims=0),
        node("ReduceMin", ["x"], ["low"], keepdims=0),
        node("Sub", ["high", "low"], ["range"]),
        node("Div", ["range", "levels"], ["s"]),
        node("Div", ["low", "s"], ["lowest_level"]),
        node("Sub", ["none", "lowest_level"], ["level"]),
        node("Floor", ["level"], ["whole"]),
        node("Cast", ["whole"], ["zp"], to=UINT8),
        node("QuantizeLinear", ["x", "s", "zp"], ["q"]),
        *dynamic(with_bias=True)[1:],
    ]


def test_matmul_integer_to_float_of_a_range_by_hand():
    constants = CONSTANTS | {"w": FACTOR, "bias": f32([1, 2, 3, 4]), "levels": f32(255), "none": f32(0)}
    model = build(by_hand(), [("x", FLOAT, [3, 6])], [("y", FLOAT, None)], constants, 10)
    fused = op_types(model)
    assert "MatMulIntegerToFloat" in fused
    assert not {"MatMulInteger", "Mul", "Add"} & set(fused)
    assert_same_results(model)


def test_matmul_integer_with_a_scale_for_each_row_is_left():
    nodes = [
        node("MatMulInteger", ["x", "w"], ["i"]),
        node("Cast", ["i"], ["c"], to=FLOAT),
        node("Mul", ["s", "ws"], ["t"]),
        node("Mul", ["c", "t"], ["y"]),
    ]
    model = build(nodes, [MATRIX, ("s", FLOAT, [3, 1])], [("y", FLOAT, None)], CONSTANTS | {"w": FACTOR})
    assert "MatMulInteger" in op_types(model)
    assert_same_results(model)
