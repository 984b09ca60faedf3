"""The activation family against onnxruntime at every version it runs, and against float64 formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType, schema_versions
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(3)
X = np.concatenate([RNG.normal(size=100) * 4, [0, -0.0, 30, -30, 1e-4]]).reshape(5, 3, 7)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def softplus(x):
    return np.logaddexp(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ERF = np.vectorize(math.erf)

FORMULAS = {
    "Relu": ({}, lambda x: np.maximum(x, 0)),
    "LeakyRelu": ({"alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
    "Elu": ({"alpha": 2.0}, lambda x: np.where(x < 0, 2 * np.expm1(x), x)),
    "Selu": ({"alpha": 2.0, "gamma": 3.0}, lambda x: 3 * np.where(x <= 0, 2 * np.expm1(x), x)),
    "Celu": ({"alpha": 2.0}, lambda x: np.maximum(0, x) + np.minimum(0, 2 * np.expm1(x / 2))),
    "ThresholdedRelu": ({"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
    "Shrink": ({"lambd": 1.5, "bias": 0.5}, lambda x: np.where(x < -1.5, x + 0.5, np.where(x > 1.5, x - 0.5, 0))),
    "Sigmoid": ({}, sigmoid),
    "HardSigmoid": ({"alpha": 0.5, "beta": 0.25}, lambda x: np.clip(0.5 * x + 0.25, 0, 1)),
    "HardSwish": ({}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "Softplus": ({}, softplus),
    "Softsign": ({}, lambda x: x / (1 + np.abs(x))),
    "Mish": ({}, lambda x: x * np.tanh(softplus(x))),
    "Swish": ({"alpha": 1.5}, lambda x: x * sigmoid(1.5 * x)),
    "Tanh": ({}, np.tanh),
    "Gelu": ({}, lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2)))),
}

DTYPES = [np.float32, np.float64, np.float16]
ALL_VERSIONS = [
    (op_type, version, dtype)
    for op_type in FORMULAS
    for version in schema_versions(op_type)
    for dtype in (DTYPES[:1] if (op_type, version) == ("Celu", 12) else DTYPES)
]


@pytest.mark.parametrize(("op_type", "version", "dtype"), ALL_VERSIONS)
def test_formula_at_every_version(op_type, version, dtype):
    attributes, formula = FORMULAS[op_type]
    x = X.astype(dtype)
    (actual,) = run_sdk(*make_model(op_type, [x], opset=version, attributes=attributes))
    tolerance = {np.float16: 1e-3, np.float32: 2e-6, np.float64: 1e-14}[dtype]
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, formula(x.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op_type", FORMULAS)
def test_formula_over_the_array_api_standard(op_type):
    attributes, formula = FORMULAS[op_type]
    version = schema_versions(op_type)[-1]
    x = X.astype(np.float32)
    (actual,) = run_kernel(op_type, [x], [TensorElementType.FLOAT], opset=version, attributes=attributes)
    np.testing.assert_allclose(actual, formula(x.astype(np.float64)), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("op_type", "opsets"),
    [
        ("Relu", [6, 13, 14]),
        ("LeakyRelu", [6, 16]),
        ("Elu", [6, 22]),
        ("Selu", [6, 22]),
        ("Celu", [12]),
        ("Gelu", [20]),
        ("HardSigmoid", [6, 22]),
        ("HardSwish", [14]),
        ("Sigmoid", [6, 13]),
        ("Softplus", [1, 22]),
        ("Softsign", [1, 22]),
        ("Swish", [24]),
        ("Mish", [18]),
        ("ThresholdedRelu", [10, 22]),
        ("Shrink", [9]),
        ("Tanh", [6, 13]),
    ],
)
def test_default_attributes_as_onnxruntime(op_type, opsets):
    for opset in opsets:
        compare(op_type, [X.astype(np.float32)], opset=opset, rtol=2e-6, atol=2e-6)


def test_selu_defaults_before_version_6_are_rounded():
    x = np.array([-1.0, 2.0], np.float32)
    (actual,) = run_sdk(*make_model("Selu", [x], opset=1))
    np.testing.assert_allclose(actual, [1.0507 * 1.6732 * math.expm1(-1), 2 * 1.0507], rtol=1e-6)


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 1.0, 2.0])
def test_leaky_relu_with_any_slope(alpha):
    compare("LeakyRelu", [X.astype(np.float32)], opset=16, attributes={"alpha": alpha})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_shrink_of_integers(dtype):
    x = np.arange(0 if dtype is np.uint8 else -5, 6).astype(dtype)
    compare("Shrink", [x], opset=9, attributes={"lambd": 1.5, "bias": 1.0})


def test_gelu_by_tanh():
    compare("Gelu", [X.astype(np.float32)], opset=20, attributes={"approximate": "tanh"}, rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("slopes", [1, 3])
def test_prelu_by_channel(opset, slopes):
    x, slope = X.astype(np.float32), RNG.normal(size=slopes).astype(np.float32)
    (actual,) = run_sdk(*make_model("PRelu", [x, slope], opset=opset))
    np.testing.assert_array_equal(actual, np.where(x < 0, x * slope.reshape(1, -1, 1), x))


@pytest.mark.parametrize("opset", [7, 9, 16])
def test_prelu_broadcasts_the_slope(opset):
    compare("PRelu", [X.astype(np.float32), RNG.normal(size=(3, 1)).astype(np.float32)], opset=opset)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_prelu_of_other_types(dtype):
    x, slope = (X * 4).astype(dtype), np.array([[2], [-3], [0]], dtype)
    (actual,) = run_sdk(*make_model("PRelu", [x, slope], opset=16))
    np.testing.assert_array_equal(actual, np.where(x < 0, x * slope, x), strict=True)


@pytest.mark.parametrize("axis", [0, 1, 2, None])
@pytest.mark.parametrize("opset", [1, 11, 13])
@pytest.mark.parametrize(
    ("op_type", "dtype"),
    [
        ("Softmax", np.float32),
        ("Softmax", np.float64),
        ("LogSoftmax", np.float32),
        ("LogSoftmax", np.float64),
        ("Hardmax", np.float32),
    ],
)
def test_softmax_family(op_type, opset, axis, dtype):
    attributes = {} if axis is None else {"axis": axis}
    compare(op_type, [X.astype(dtype)], opset=opset, attributes=attributes, rtol=1e-6, atol=1e-6)


def test_softmax_of_large_and_no_numbers():
    (actual,) = run_sdk(*make_model("Softmax", [np.array([[1e4, -1e4, 1e4]], np.float32)], opset=13))
    np.testing.assert_array_equal(actual, [[0.5, 0, 0.5]])
    (empty,) = run_sdk(*make_model("LogSoftmax", [np.zeros((2, 0), np.float32)], opset=13))
    assert empty.shape == (2, 0)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_family_over_the_array_api_standard(op_type, opset):
    x = X.astype(np.float32)
    (expected,) = run_sdk(*make_model(op_type, [x], opset=opset, attributes={"axis": 1}))
    (actual,) = run_kernel(op_type, [x], [TensorElementType.FLOAT], opset=opset, attributes={"axis": 1})
    assert_same(actual, expected, 1e-6, 1e-6)


def test_swiglu_wants_equal_shapes():
    with pytest.raises(InvalidArgument, match="must be equal"):
        run_kernel("SwiGLU", [X.astype(np.float32), np.ones(7, np.float32)], [TensorElementType.FLOAT], opset=28)


def test_unknown_gelu_approximation():
    with pytest.raises(InvalidGraph, match="'none', 'tanh'"):
        run_kernel("Gelu", [X.astype(np.float32)], [TensorElementType.FLOAT], opset=20, attributes={"approximate": "fast"})


def test_axis_out_of_range():
    with pytest.raises(InvalidArgument, match="axis 3"):
        run_kernel("Softmax", [X.astype(np.float32)], [TensorElementType.FLOAT], opset=13, attributes={"axis": 3})
