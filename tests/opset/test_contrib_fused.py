"""com.microsoft products, convolutions and pooling with fused steps, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opset.one_node import assert_same, compare, make_model, run_reference, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(17)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("op_type", ["FusedMatMul", "TransposeMatMul"])
@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_matmul(op_type, trans_a, trans_b):
    a = floats(2, 4, 3) if trans_a else floats(2, 3, 4)
    b = floats(5, 4) if trans_b else floats(4, 5)
    compare(op_type, [a, b], domain=MICROSOFT, attributes={"transA": trans_a, "transB": trans_b, "alpha": 0.5})


@pytest.mark.parametrize("trans_a", [0, 1])
def test_matmul_with_batch_axes_behind(trans_a):
    a = floats(4, 2, 3, 6) if trans_a else floats(6, 2, 3, 4)
    attributes = {"transA": trans_a, "transBatchA": 1}
    if trans_a:
        a = np.moveaxis(a, (0, 3), (0, 3))
    compare("FusedMatMul", [a, floats(2, 3, 4, 5)], domain=MICROSOFT, attributes=attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
        {"activation": "Tanh", "transB": 1, "alpha": 0.5, "beta": 2.0},
        {"activation": "Sigmoid"},
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ],
)
def test_gemm(attributes):
    b = floats(5, 4) if attributes.get("transB") else floats(4, 5)
    compare("FusedGemm", [floats(3, 4), b, floats(5)], domain=MICROSOFT, attributes=attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        {"activation": "Clip", "activation_params": [-0.5, 0.7]},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
        {"activation": "Tanh", "group": 2},
    ],
)
@pytest.mark.parametrize("with_sum", [False, True])
def test_conv(attributes, with_sum):
    group = attributes.get("group", 1)
    inputs = [floats(2, 4, 7, 6), floats(6, 4 // group, 3, 3), floats(6), floats(2, 6, 7, 6) if with_sum else None]
    attributes = {**attributes, "pads": [1, 1, 1, 1]}
    compare("FusedConv", inputs, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_conv_of_channels_last_data():
    x, w, bias, z = floats(2, 4, 7, 6), floats(6, 4, 3, 3), floats(6), floats(2, 6, 5, 4)
    arguments = {"domain": MICROSOFT, "attributes": {"activation": "Relu"}, "output_types": [1]}
    (expected,) = run_reference(*make_model("FusedConv", [x, w, bias, z], **arguments))
    moved = [np.ascontiguousarray(np.moveaxis(x, 1, -1)), w, bias, np.ascontiguousarray(np.moveaxis(z, 1, -1))]
    (got,) = run_sdk(*make_model("NhwcFusedConv", moved, **arguments))
    assert_same(np.moveaxis(got, -1, 1), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_channels_last_data(dtype):
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max + 1, (2, 7, 6, 3)).astype(dtype)
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    compare("NhwcMaxPool", [x], domain=MICROSOFT, attributes=attributes)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_quantized_average_pool(dtype, channels_last, count_include_pad):
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max + 1, (2, 7, 6, 3) if channels_last else (2, 3, 7, 6)).astype(dtype)
    zero = np.array(5, dtype)
    inputs = [x, np.array(0.05, np.float32), zero, np.array(0.04, np.float32), zero]
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "channels_last": channels_last}
    attributes["count_include_pad"] = count_include_pad
    compare("QLinearAveragePool", inputs, domain=MICROSOFT, attributes=attributes, off_by=1)


def test_conv_transpose_with_pads_as_input():
    inputs = [floats(1, 2, 5, 5), floats(2, 3, 3, 3), np.array([1, 0, 1, 1], np.int64), floats(3)]
    attributes = {"strides": [2, 2]}
    compare("ConvTransposeWithDynamicPads", inputs, domain=MICROSOFT, attributes=attributes, atol=1e-4)
