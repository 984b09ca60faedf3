"""Dequantized weights of convolutions as constants: what is folded, what is left, and the same results as onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.testing.error_bounds import assert_sums_close

RUNS = 3
RNG = np.random.default_rng(0)


def conv_model(weight, scales, zero_points, *, bias=None, others=(), **attributes):
    constants = {"w": weight, "s": scales, "z": zero_points}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], **attributes)]
    inputs = ["x", "f"]
    if bias is not None:
        constants |= {"b": bias, "t": np.float32(0.01)}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "t"], ["c"]))
        inputs.append("c")
    nodes += [helper.make_node("Conv", inputs, ["y"]), *others]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *(n.output[0] for n in others))]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5, 9, 8])],
        outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if value is not None],
    )
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def operators(session):
    return [row.op_type for row in session.placements()]


def check(model):
    """The operators there are, once results are those of onnxruntime."""
    x = RNG.standard_normal((1, 5, 9, 8)).astype(np.float32)
    session = ort.InferenceSession(model)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for _ in range(RUNS):
        for found, other in zip(session.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-5)
    return operators(session)


def dequantized(values, scales, zero_points, axis=1, block_size=0):
    """DequantizeLinear's formula in float64."""
    scales, zero_points = np.asarray(scales, np.float64), np.asarray(0 if zero_points is None else zero_points, np.float64)
    if block_size:
        scales, zero_points = np.repeat(scales, block_size, axis), np.repeat(zero_points, block_size, axis)
    elif scales.size > 1:
        columns = [-1 if dimension == axis % values.ndim else 1 for dimension in range(values.ndim)]
        scales, zero_points = scales.reshape(columns), zero_points.reshape(columns)
    return (values.astype(np.float64) - zero_points) * scales


def convolution(x, weight):
    """Conv without padding in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight)


def check_convolution(weight, scales, zero_points, *, bias=None, others=(), **attributes):
    """The operators there are, once the convolution is as near to float64 as rounding allows."""
    x = RNG.standard_normal((1, 5, 9, 8)).astype(np.float32)
    session = ort.InferenceSession(conv_model(weight, scales, zero_points, bias=bias, others=others, **attributes))
    real = dequantized(weight, scales, zero_points, **attributes)
    exact, magnitudes = convolution(x, real), convolution(np.abs(x), np.abs(real))
    if bias is not None:
        added = bias.astype(np.float64)[:, None, None] * np.float32(0.01)
        exact, magnitudes = exact + added, magnitudes + np.abs(added)
    for _ in range(RUNS):
        found = session.run(["y"], {"x": x})[0]
        # each weight was rounded once when it was scaled, and so was each bias, which is added once
        assert_sums_close(found, exact, magnitudes, weight[0].size + 2)
    return operators(session)


def steps(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_weights_become_constants(dtype, axis, has_bias):
    weight = steps(dtype, 7, 5, 3, 2)
    count = 1 if axis is None else weight.shape[axis]
    scales = RNG.uniform(1e-4, 1e-3, count).astype(np.float32)
    zero_points = steps(dtype, count)
    if axis is None:
        scales, zero_points = scales.reshape(()), zero_points.reshape(())
    attributes = {} if axis is None else {"axis": axis}
    bias = steps(np.int32, 7) // 2**20 if has_bias else None
    assert check_convolution(weight, scales, zero_points, bias=bias, **attributes) == ["Conv"]


def test_what_others_read_is_left():
    other = helper.make_node("ReduceSum", ["f"], ["sum"])
    weight = steps(np.int8, 7, 5, 3, 2)
    assert "DequantizeLinear" in check_convolution(weight, np.float32(0.01), np.int8(3), others=[other])


def test_blocks_are_left():
    scales = RNG.uniform(0.01, 0.1, (7, 5, 3, 1)).astype(np.float32)
    weight, zero_points = steps(np.int8, 7, 5, 3, 2), np.zeros((7, 5, 3, 1), np.int8)
    assert "DequantizeLinear" in check_convolution(weight, scales, zero_points, axis=3, block_size=2)


def test_the_config_may_keep_them():
    options = ort.SessionOptions()
    model = conv_model(steps(np.int8, 7, 5, 3, 2), np.float32(0.01), np.int8(3))
    session = ort.InferenceSession(model, options, disabled_optimizers=["DequantizedWeightFolding"])
    assert operators(session) == ["DequantizeLinear", "Conv"]


def test_an_image_that_is_dequantized_is_not_folded():
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["x", "s"], ["a"]), helper.make_node("Conv", ["a", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3, 1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(steps(np.int8, 1, 3, 4, 4), "x"), numpy_helper.from_array(np.float32(0.1), "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    assert operators(ort.InferenceSession(model)) == ["DequantizeLinear", "Conv"]


@pytest.mark.parametrize(("scale_shape", "zero_shape"), [((1,), ()), ((), (1,)), ((1,), (1,))])
def test_one_number_may_have_an_axis(scale_shape, zero_shape):
    scale, zero_point = np.full(scale_shape, 0.01, np.float32), np.full(zero_shape, 3, np.int8)
    assert check_convolution(steps(np.int8, 7, 5, 3, 2), scale, zero_point) == ["Conv"]


def test_normalizations_of_quantized_statistics_are_a_product_and_a_sum():
    constants = {
        "w": steps(np.int8, 5),
        "b": steps(np.int32, 5) // 2**24,
        "m": RNG.standard_normal(5).astype(np.float32),
        "v": RNG.uniform(0.5, 2, 5).astype(np.float32),
        **{name: np.float32(0.02) for name in ("ws", "s")},
        **{name: np.int8(3) for name in ("wz", "z")},
        "bs": np.full(1, 0.01, np.float32),
        "bz": np.int32(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weight"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bias"]),
        helper.make_node("BatchNormalization", ["real", "weight", "bias", "m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5, 9, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert check(model) == ["QuantizeLinear", "DequantizeLinear", "Mul", "Add"]
