"""Quantisation operators of ai.onnx against onnxruntime and float64 formulas."""

from __future__ import annotations

from types import SimpleNamespace

import array_api_strict
import ml_dtypes
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg, TensorElementType
from ort_sdk.opset.definition import as_namespace
from ort_sdk.opset.quantization import integer_gemm
from ort_sdk.opset.quantization.integer_gemm import IntegerGemm
from ort_sdk.opset.quantization.linear import dequantize_linear, quantize_linear
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(11)


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def parameters(dtype, scale):
    return np.array(scale, np.float32), np.array(3 if dtype is np.int8 else 125, dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_quantize_per_tensor(opset, dtype):
    x = (RNG.normal(size=(3, 50)) * 20).astype(np.float32)
    x[0, :5] = [0.5, 1.5, 2.5, -0.5, 1e9]
    compare("QuantizeLinear", [x, np.array(0.25, np.float32), np.array(4, dtype)], opset=opset)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("scale", [1, np.inf, np.nan])
def test_quantize_what_is_no_number(dtype, scale):
    x = np.array([np.nan, np.inf, -np.inf, 0, 5.5, 1e30], np.float32)
    inputs = [x, np.array(scale, np.float32), np.array(3, dtype)]
    (expected,) = compare("QuantizeLinear", inputs, opset=21)
    over_the_standard = quantize_linear(
        linear_node("QuantizeLinear", "float", "float", np.dtype(dtype).name), as_namespace(array_api_strict)
    )
    with np.errstate(invalid="ignore"):  # as sessions do
        quantized = over_the_standard(*[array_api_strict.asarray(value) for value in inputs])
    np.testing.assert_array_equal(np.from_dlpack(quantized), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis(axis, dtype):
    x = (RNG.normal(size=(3, 4, 5)) * 4).astype(np.float32)
    scale = RNG.uniform(0.1, 1, x.shape[axis]).astype(np.float32)
    zero_point = np.arange(x.shape[axis]).astype(dtype)
    arguments = {"opset": 21, "attributes": {"axis": axis}}
    (quantized,) = run_sdk(*make_model("QuantizeLinear", [x, scale, zero_point], output_types=[code(dtype)], **arguments))
    shape = [1, 1, 1]
    shape[axis] = -1
    limits = ml_dtypes.iinfo(dtype)
    expected = np.clip(np.rint(x / scale.reshape(shape)) + zero_point.astype(np.float32).reshape(shape), limits.min, limits.max)
    np.testing.assert_array_equal(quantized.astype(np.float32), expected)
    (restored,) = run_sdk(*make_model("DequantizeLinear", [quantized, scale, zero_point], output_types=[1], **arguments))
    wide = (quantized.astype(np.float64) - zero_point.astype(np.float64).reshape(shape)) * scale.reshape(shape)
    np.testing.assert_allclose(restored, wide, rtol=1e-6)


def code(dtype):
    return int(TensorElementType.from_numpy_dtype(dtype))


@pytest.mark.parametrize("size", [8, 7])
def test_blocked_weights_with_a_short_last_block(size):
    x = integers(np.int8, 3, size)
    scale = RNG.uniform(0.1, 1, (3, 2)).astype(np.float32)
    zero_point = integers(np.int8, 3, 2)
    attributes = {"axis": 1, "block_size": 4}
    (got,) = run_sdk(*make_model("DequantizeLinear", [x, scale, zero_point], opset=21, attributes=attributes, output_types=[1]))
    blocks = np.arange(size) // 4
    np.testing.assert_allclose(got, (x.astype(np.float32) - zero_point[:, blocks]) * scale[:, blocks], rtol=1e-6)


@pytest.mark.parametrize("domain", ["", MICROSOFT])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_round_trip_of_half_precision(domain, dtype):
    x = (RNG.normal(size=(4, 6)) * 10).astype(np.float16)
    scale = np.array(0.125, np.float16)
    (quantized,) = compare("QuantizeLinear", [x, scale, np.array(3, dtype)], domain=domain, opset=1 if domain else 21)
    compare("DequantizeLinear", [quantized, scale, np.array(3, dtype)], domain=domain, opset=1 if domain else 21)


def test_dequantize_of_int32():
    compare("DequantizeLinear", [integers(np.int32, 5, 6), np.array(0.01, np.float32)], opset=13)


@pytest.mark.parametrize(
    ("dtype", "saturate", "expected"),
    [
        (ml_dtypes.float8_e4m3fn, 1, [0.625, 448, -448, 448, -448]),
        (ml_dtypes.float8_e4m3fn, 0, [0.625, np.nan, np.nan, np.nan, np.nan]),
        (ml_dtypes.float8_e5m2, 1, [0.625, 2048, -57344, 57344, -57344]),
        (ml_dtypes.float8_e5m2, 0, [0.625, 2048, -np.inf, np.inf, -np.inf]),
    ],
)
def test_float8(dtype, saturate, expected):
    x = np.array([0.3, 1000, -1e6, np.inf, -np.inf], np.float32)
    inputs = [x, np.array(0.5, np.float32), np.array(0, dtype)]
    attributes = {"saturate": saturate}
    (got,) = run_sdk(*make_model("QuantizeLinear", inputs, opset=19, attributes=attributes, output_types=[code(dtype)]))
    np.testing.assert_array_equal(got.astype(np.float32), np.array(expected, np.float32))


def test_output_dtype_and_precision():
    x = np.array([100.49, 101.49, 3.2], np.float32)
    attributes = {"output_dtype": 3, "precision": 10}
    model = make_model("QuantizeLinear", [x, np.array(1, np.float32)], opset=23, attributes=attributes, output_types=[3])
    (got,) = run_sdk(*model)
    assert_same(got, np.rint(x.astype(np.float16)).astype(np.int8), 0, 0)


@pytest.mark.parametrize("values", [[0, 0, 0], [1, 2, 5], [-4, -1, -0.5], [-3, 0, 9.5]])
def test_dynamic_quantize(values):
    compare("DynamicQuantizeLinear", [np.array(values, np.float32)], 3, opset=11)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_dynamic_quantize_of_nothing(shape):
    compare("DynamicQuantizeLinear", [np.zeros(shape, np.float32)], 3, opset=11)


@pytest.mark.parametrize("size", [5, 300, 3000])
@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
def test_matmul_integer(b_type, size):
    inputs = [integers(np.uint8, 4, size), integers(b_type, size, 6), np.array(9, np.uint8), integers(b_type, 6)]
    compare("MatMulInteger", inputs, opset=13)
    compare("MatMulInteger", inputs, opset=13, constants=(1, 3))


@pytest.mark.parametrize("opset", [10, 21])
@pytest.mark.parametrize("per_column", [False, True])
def test_qlinear_matmul(per_column, opset):
    b_scale = RNG.uniform(0.01, 0.02, 5).astype(np.float32) if per_column else np.array(0.01, np.float32)
    b_zero_point = integers(np.int8, 5) if per_column else np.array(-4, np.int8)
    inputs = [integers(np.uint8, 2, 4, 30), *parameters(np.uint8, 0.02), integers(np.int8, 30, 5), b_scale, b_zero_point]
    compare("QLinearMatMul", [*inputs, *parameters(np.uint8, 0.5)], opset=opset, off_by=1)


def conv_inputs(x_type, w_type, per_channel, channels_last=False):
    x = integers(x_type, 2, 6, 9, 8)
    w = integers(w_type, 4, 3, 3, 2)
    scale = RNG.uniform(0.005, 0.01, 4).astype(np.float32) if per_channel else np.array(0.005, np.float32)
    zero = np.zeros(4, w_type) if per_channel else np.array(0 if w_type is np.int8 else 120, w_type)
    bias = RNG.integers(-2000, 2000, 4).astype(np.int32)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
    return [x, *parameters(x_type, 0.02), w, scale, zero, *parameters(x_type, 0.9), bias]


CONV_ATTRIBUTES = {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}


@pytest.mark.parametrize("constants", [(), (3, 4, 5, 8)])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("x_type", "w_type"), [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_qlinear_conv(x_type, w_type, per_channel, constants):
    inputs = conv_inputs(x_type, w_type, per_channel)
    compare("QLinearConv", inputs, opset=13, attributes=CONV_ATTRIBUTES, constants=constants, off_by=1)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_conv_of_onnxruntime(channels_last):
    inputs = conv_inputs(np.uint8, np.int8, True, bool(channels_last))
    attributes = {**CONV_ATTRIBUTES, "channels_last": channels_last}
    compare("QLinearConv", inputs, domain=MICROSOFT, attributes=attributes, constants=(3, 4, 5, 8), off_by=1)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_integer_of_sums_that_float32_cannot_hold(groups):
    rng = np.random.default_rng(7)
    x = rng.integers(250, 256, (2, 600, 5, 5)).astype(np.uint8)
    w = rng.integers(120, 128, (4, 600 // groups, 3, 3)).astype(np.int8)
    attributes = {"pads": [1, 1, 1, 1], "group": groups}
    compare("ConvInteger", [x, w, None, np.array(-1, np.int8)], opset=13, attributes=attributes, constants=(1, 3))


def test_conv_integer():
    x, w = integers(np.uint8, 2, 6, 9, 8), integers(np.uint8, 4, 3, 3, 2)
    inputs = [x, w, np.array(100, np.uint8), np.array(77, np.uint8)]
    compare("ConvInteger", inputs, opset=13, attributes=CONV_ATTRIBUTES)


@pytest.mark.parametrize("shape", [(40, 7), (3, 40, 7), (40,)])
@pytest.mark.parametrize("values", [1, 40, -128])
def test_products_of_constants_are_float32_while_their_sums_are_exact(shape, values, monkeypatch):
    monkeypatch.setattr(integer_gemm, "CHUNK_ELEMENTS", 16)
    constant = np.full(shape, values, np.int8)
    tensor = SimpleNamespace(numpy=lambda: constant, element_type=TensorElementType.INT8, shape=shape)
    arguments = tuple(NodeArg(name, "tensor(int8)") for name in "ab")
    info = KernelInfo("MatMulInteger", 10, inputs=arguments, constants={1: tensor})
    bound = 2**24 // 40
    exact, too_large = (IntegerGemm(info, bound // abs(values) + extra, (1, 3), -2) for extra in (-1, 2))
    assert exact.element_type(40) is TensorElementType.FLOAT
    assert too_large.element_type(40) is TensorElementType.DOUBLE


def test_convolution_bounds_sum_over_all_but_output_channels(monkeypatch):
    monkeypatch.setattr(integer_gemm, "CHUNK_ELEMENTS", 16)
    constant = np.zeros((4, 3, 5, 5), np.int8)
    constant[2] = 100
    tensor = SimpleNamespace(numpy=lambda: constant, element_type=TensorElementType.INT8, shape=constant.shape)
    info = KernelInfo("ConvInteger", 10, inputs=tuple(NodeArg(name, "tensor(int8)") for name in "xw"), constants={1: tensor})
    limit = 2**24 // 7500
    assert IntegerGemm(info, limit, (1, 3), None).element_type(75) is TensorElementType.FLOAT
    assert IntegerGemm(info, limit + 1, (1, 3), None).element_type(75) is TensorElementType.DOUBLE


def linear_node(op_type, *types, **attributes):
    arguments = tuple(NodeArg(f"x{index}", f"tensor({name})") for index, name in enumerate(types))
    return KernelInfo(op_type, 21, inputs=arguments, outputs=(NodeArg("y"),), attributes=attributes)


def test_scale_of_the_wrong_length():
    info = linear_node("DequantizeLinear", "int8", "float", axis=1)
    kernel = dequantize_linear(info, as_namespace(np))
    with pytest.raises(InvalidArgument, match="a vector of 3"):
        kernel(np.zeros((2, 3), np.int8), np.ones(2, np.float32))


def test_axis_out_of_range():
    kernel = dequantize_linear(linear_node("DequantizeLinear", "int8", "float", axis=4), as_namespace(np))
    with pytest.raises(InvalidArgument, match="axis 4 is outside"):
        kernel(np.zeros((2, 3), np.int8), np.ones(2, np.float32))


def test_blocks_that_do_not_fit():
    info = linear_node("DequantizeLinear", "int8", "float", axis=1, block_size=2)
    kernel = dequantize_linear(info, as_namespace(np))
    with pytest.raises(InvalidArgument, match="in blocks of 2"):
        kernel(np.zeros((2, 6), np.int8), np.ones((2, 2), np.float32))


def test_over_the_array_api_standard():
    xp = as_namespace(array_api_strict)
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    scale, zero_point = np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.int8)
    arrays = [array_api_strict.asarray(value) for value in (x, scale, zero_point)]
    quantized = quantize_linear(linear_node("QuantizeLinear", "float", "float", "int8", axis=0), xp)(*arrays)
    expected = np.clip(np.rint(x / scale[:, None]) + zero_point[:, None], -128, 127).astype(np.int8)
    np.testing.assert_array_equal(np.from_dlpack(quantized), expected)
    info = linear_node("DequantizeLinear", "int8", "float", "int8", axis=0)
    restored = dequantize_linear(info, xp)(quantized, *arrays[1:])
    np.testing.assert_allclose(np.from_dlpack(restored), (expected - zero_point[:, None]) * scale[:, None], rtol=1e-6)
