"""ConvInteger whose sums float32 does not hold, and small products with weights wider than 8 bits: as onnxruntime, bit by bit."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from ort_sdk import InferenceSession

RUNS = 4


def check(nodes, x, constants, out_type):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(out_type)), None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = InferenceSession(model)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    for _ in range(RUNS):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def steps(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("zero_point", [0, 115, 128, 255])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [24, 300, 512])
def test_convolutions(channels, dtype, zero_point):
    rng = np.random.default_rng(0)
    x, w = steps(rng, np.uint8, 1, channels, 9, 8), steps(rng, dtype, 70, channels, 3, 3)
    zero = np.uint8(zero_point) if dtype == np.uint8 else np.int8(zero_point - 128)
    convolved = helper.make_node("ConvInteger", ["x", "w", "a", "b"], ["s"], pads=[1, 1, 0, 1], strides=[2, 1])
    constants = {"w": w, "a": np.uint8(77), "b": zero}
    check([convolved, helper.make_node("Cast", ["s"], ["y"], to=1)], x, constants, np.float32)
    check([helper.make_node("ConvInteger", ["x", "w", "a", "b"], ["y"])], x, constants, np.int32)


def test_the_largest_sums():
    x, w = np.full((1, 512, 5, 5), 255, np.uint8), np.full((64, 512, 3, 3), 255, np.uint8)
    convolved = helper.make_node("ConvInteger", ["x", "w", "a", "b"], ["y"])
    check([convolved], x, {"w": w, "a": np.uint8(0), "b": np.uint8(0)}, np.int32)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("inner", "columns"), [(64, 256), (128, 10), (256, 128)])
def test_small_products_by_wide_weights(inner, columns, dtype, rows):
    rng = np.random.default_rng(1)
    a, b = steps(rng, np.uint8, rows, inner), steps(rng, dtype, inner, columns)
    zeros = (rng.integers(100, 140, columns) - (128 if dtype == np.int8 else 0)).astype(dtype)
    constants = {"s": np.float32(0.02), "z": np.uint8(117), "b": b, "t": rng.uniform(1e-3, 2e-3, columns).astype(np.float32)}
    constants |= {"o": zeros, "c": rng.integers(-9000, 9000, columns).astype(np.int32), "u": np.float32(0.35), "v": np.uint8(90)}
    names = ["x", "s", "z", "b", "t", "o", "c", "u", "v"]
    check([helper.make_node("QGemm", names, ["y"], domain="com.microsoft")], a, constants, np.uint8)


@pytest.mark.parametrize("zero_point", [0, 255])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_weights_as_far_as_can_be_from_their_zero_point(dtype, zero_point):
    rng = np.random.default_rng(2)
    x, w = steps(rng, np.uint8, 1, 24, 20, 20), steps(rng, dtype, 32, 24, 3, 3)
    shift = 128 if dtype == np.int8 else 0
    constants = {"w": w, "s": np.float32(0.02), "z": np.uint8(117), "t": np.float32(0.003), "o": dtype(zero_point - shift)}
    names = ["x", "s", "z", "w", "t", "o", "u", "v"]
    check([helper.make_node("QLinearConv", names, ["y"])], x, constants | {"u": np.float32(9.5), "v": np.uint8(90)}, np.uint8)
