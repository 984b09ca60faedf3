"""com.microsoft operators on 8-bit tensors against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.contrib.quantized_elementwise import qlinear_concat
from ort_sdk.opset.definition import as_namespace
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(7)


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def parameters(dtype, scale):
    return np.array(scale, np.float32), np.array(3 if dtype is np.int8 else 125, dtype)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1))])
def test_binary(op_type, dtype, shapes):
    inputs = [integers(dtype, *shapes[0]), *parameters(dtype, 0.03), integers(dtype, *shapes[1]), *parameters(dtype, 0.05)]
    compare(op_type, [*inputs, *parameters(dtype, 0.07)], domain=MICROSOFT, off_by=1)


def test_absent_zero_points():
    a, b = integers(np.uint8, 50), integers(np.uint8, 50)
    scales = [np.array(scale, np.float32) for scale in (0.1, 0.2, 0.25)]
    model, feeds = make_model(
        "QLinearAdd", [a, scales[0], None, b, scales[1], None, scales[2]], domain=MICROSOFT, output_types=[2]
    )
    (got,) = run_sdk(model, feeds)
    expected = np.clip(np.rint((a * 0.1 + b * 0.2) / 0.25), 0, 255)
    assert_same(got, expected.astype(np.uint8), 0, 0, off_by=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSigmoid", {}),
        ("QLinearSoftmax", {"opset": 13, "axis": 1}),
        ("QLinearSoftmax", {"opset": 12, "axis": 1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
    ],
)
def test_unary(op_type, attributes, dtype):
    output = parameters(dtype, 1 / 256) if op_type != "QLinearGlobalAveragePool" else parameters(dtype, 0.04)
    inputs = [integers(dtype, 2, 3, 4, 5), *parameters(dtype, 0.05), *output]
    compare(op_type, inputs, domain=MICROSOFT, attributes=attributes, off_by=1)


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("shape", [(2, 0), (0, 3)])
def test_softmax_of_nothing(shape, axis, opset):
    """onnxruntime gives no value at all."""
    inputs = [integers(np.uint8, *shape), *parameters(np.uint8, 0.05), *parameters(np.uint8, 1 / 256)]
    attributes = {"axis": axis, "opset": opset}
    model, feeds = make_model("QLinearSoftmax", inputs, domain=MICROSOFT, attributes=attributes, output_types=[2])
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        (got,) = session.run(None, feeds)
        assert (got.shape, got.dtype) == (shape, np.uint8)


def test_softmax_over_an_axis_that_is_not_there():
    inputs = [integers(np.uint8, 2, 3), *parameters(np.uint8, 0.05), *parameters(np.uint8, 1 / 256)]
    attributes = {"axis": 2, "opset": 13}
    model, feeds = make_model("QLinearSoftmax", inputs, domain=MICROSOFT, attributes=attributes, output_types=[2])
    with pytest.raises(InvalidArgument, match="axis 2 is outside"):
        run_sdk(model, feeds)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_where(dtype):
    condition = RNG.random((3, 4)) > 0.5
    inputs = [condition, integers(dtype, 3, 4), *parameters(dtype, 0.02), integers(dtype, 1, 4), *parameters(dtype, 0.06)]
    compare("QLinearWhere", [*inputs, *parameters(dtype, 0.05)], domain=MICROSOFT, off_by=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_concat(dtype):
    triples = [integers(dtype, 2, 3), *parameters(dtype, 0.02), integers(dtype, 2, 1), *parameters(dtype, 0.08)]
    inputs = [*parameters(dtype, 0.05), *triples]
    compare("QLinearConcat", inputs, domain=MICROSOFT, attributes={"axis": 1}, off_by=1)


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("constants", [(), (3, 4, 5)])
def test_qgemm(trans, per_column, quantized, constants):
    shape_b = (6, 8) if trans else (8, 6)
    b_scale = RNG.uniform(0.01, 0.02, 6).astype(np.float32) if per_column else np.array(0.01, np.float32)
    b_zero = np.full(6, 2, np.int8) if per_column else np.array(2, np.int8)
    inputs = [
        integers(np.uint8, 5, 8),
        *parameters(np.uint8, 0.02),
        integers(np.int8, *shape_b),
        b_scale,
        b_zero,
        RNG.integers(-1000, 1000, 6).astype(np.int32),
    ]
    inputs += list(parameters(np.uint8, 0.5)) if quantized else [None, None]
    compare("QGemm", inputs, domain=MICROSOFT, attributes={"transB": trans, "alpha": 1.5}, off_by=1, constants=constants)


@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_matmul(b_type, per_column):
    a = RNG.normal(size=(2, 7, 32)).astype(np.float32)
    b_scale = RNG.uniform(0.01, 0.02, 9).astype(np.float32) if per_column else np.array(0.01, np.float32)
    b_zero = integers(b_type, 9) if per_column else np.array(4, b_type)
    bias = RNG.normal(size=9).astype(np.float32)
    inputs = [a, integers(b_type, 32, 9), b_scale, b_zero, bias]
    compare("DynamicQuantizeMatMul", inputs, domain=MICROSOFT, rtol=1e-4, atol=1e-3, constants=(1, 2, 3))
    compare("DynamicQuantizeMatMul", [*inputs[:3]], domain=MICROSOFT, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
def test_matmul_integer_to_float(b_type):
    inputs = [
        integers(np.uint8, 3, 700),
        integers(b_type, 700, 5),
        np.array(0.02, np.float32),
        RNG.uniform(0.01, 0.02, 5).astype(np.float32),
        np.array(120, np.uint8),
        integers(b_type, 5),
        RNG.normal(size=5).astype(np.float32),
    ]
    compare("MatMulIntegerToFloat", inputs, domain=MICROSOFT, rtol=1e-5, atol=1e-3)


def run_alone(op_type, inputs, dtype, **attributes):
    element_type = int(TensorElementType.from_numpy_dtype(dtype))
    (got,) = run_sdk(*make_model(op_type, inputs, domain=MICROSOFT, attributes=attributes, output_types=[element_type]))
    return got


def test_integer_operators_that_onnxruntime_only_declares():
    a, b = integers(np.int16, 3, 4), integers(np.int16, 4, 5)
    got = run_alone("MatMulInteger16", [a, b], np.int32)
    np.testing.assert_array_equal(got, (a.astype(np.int64) @ b).astype(np.int32))
    x, y = integers(np.uint8, 3, 4), integers(np.uint8, 4)
    got = run_alone("MulInteger", [x, np.array(9, np.uint8), y, np.array(200, np.uint8)], np.int32)
    np.testing.assert_array_equal(got, (x.astype(np.int32) - 9) * (y.astype(np.int32) - 200))
    got = run_alone("ReduceSumInteger", [x], np.int32, axes=[1], keepdims=0)
    np.testing.assert_array_equal(got, x.sum(axis=1, dtype=np.int32))


def test_quantized_mean():
    x = integers(np.uint8, 3, 4, 5)
    parameters_of_both = [np.array(0.5, np.float32), np.array(10, np.uint8), np.array(0.25, np.float32), np.array(20, np.uint8)]
    got = run_alone("QLinearReduceMean", [x, *parameters_of_both], np.uint8, axes=[0, 2], keepdims=1)
    mean = ((x.astype(np.float64) - 10) * 0.5).mean(axis=(0, 2), keepdims=True)
    assert_same(got, np.clip(np.rint(mean / 0.25) + 20, 0, 255).astype(np.uint8), 0, 0, off_by=1)


def test_concatenation_of_incomplete_triples():
    info = KernelInfo("QLinearConcat", 1, MICROSOFT, attributes={"axis": 0})
    with pytest.raises(InvalidArgument, match="triples"):
        qlinear_concat(info, as_namespace(np))(*parameters(np.uint8, 0.1), integers(np.uint8, 3))


@pytest.mark.parametrize(("position", "value"), [(2, np.ones((2, 3), np.float32)), (3, np.array(2, np.uint8))])
def test_concatenation_of_other_types(position, value):
    inputs = [*parameters(np.uint8, 0.05), integers(np.uint8, 2, 3), *parameters(np.uint8, 0.02)]
    inputs[position] = value
    options = {"domain": MICROSOFT, "attributes": {"axis": 1}, "output_types": [TensorElementType.UINT8]}
    model, feeds = make_model("QLinearConcat", inputs, **options)
    with pytest.raises(InvalidArgument, match=f"input {position} is"):
        run_sdk(model, feeds)
