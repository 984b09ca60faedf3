"""com.microsoft operators on tensors, and ONNX Runtime's additions to ai.onnx, against onnxruntime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opset.one_node import assert_same, compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(19)


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes"),
    [
        ("GatherND", [floats(2, 3, 4), np.array([[0, 1], [1, 2]], np.int32)], 1, {}),
        ("Pad", [floats(2, 3), np.array([1, 0, 0, 2], np.int64), np.array(7, np.float32)], 1, {}),
        ("Trilu", [floats(3, 4, 5), np.array(1, np.int64)], 1, {"upper": 0}),
        ("Range", [np.array(2, np.int32), np.array(9, np.int32)], 1, {}),
        ("Range", [np.array([2], np.float32), np.array([9], np.float32), np.array([2], np.float32)], 1, {}),
        ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], 3, {}),
        ("ExpandDims", [floats(2, 3), np.array(1, np.int32)], 1, {}),
        ("ExpandDims", [floats(2, 3), np.array(-1, np.int32)], 1, {}),
        ("SampleOp", [floats(2, 3)], 1, {}),
        ("GridSample", [floats(1, 2, 4, 5), np.tanh(floats(1, 3, 3, 2))], 1, {"align_corners": 1}),
        ("CDist", [floats(4, 6, dtype=np.float64), floats(5, 6, dtype=np.float64)], 1, {"metric": "euclidean"}),
        ("CDist", [floats(4, 6), floats(5, 6)], 1, {"metric": "sqeuclidean"}),
        ("Inverse", [floats(3, 4, 4)], 1, {}),
        ("UnfoldTensor", [floats(3, 9)], 1, {"dim": 1, "size": 4, "step": 2}),
        ("UnfoldTensor", [floats(7, 3)], 1, {"dim": 0, "size": 2, "step": 3}),
    ],
)
def test_against_onnxruntime(op_type, inputs, outputs, attributes):
    compare(op_type, inputs, outputs, domain=MICROSOFT, attributes=attributes, rtol=1e-3, atol=1e-4)


def run_alone(op_type, inputs, element_type=1, domain=MICROSOFT, opset=None, **attributes):
    model = make_model(op_type, inputs, domain=domain, opset=opset, attributes=attributes, output_types=[element_type])
    (got,) = run_sdk(*model)
    return got


def test_complex_products():
    a, b = floats(3, 5, 2), floats(5, 2)
    for op_type, sign in (("ComplexMul", 1), ("ComplexMulConj", -1)):
        expected = (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + 1j * sign * b[..., 1])
        np.testing.assert_allclose(run_alone(op_type, [a, b]), np.stack([expected.real, expected.imag], axis=-1), rtol=1e-4)


def test_fourier_transforms():
    x = floats(3, 8)
    spectrum = np.fft.rfft(x)
    got = run_alone("Rfft", [x], signal_ndim=1)
    np.testing.assert_allclose(got, np.stack([spectrum.real, spectrum.imag], axis=-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_alone("Irfft", [got], signal_ndim=1), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "attributes", "expected"),
    [
        ([1, 2], {}, True),
        ([1, np.inf], {}, False),
        ([1, np.nan], {}, False),
        ([1, np.nan], {"isinf_only": 1}, True),
        ([1, np.inf], {"isnan_only": 1}, True),
    ],
)
def test_is_all_finite(values, attributes, expected):
    got = run_alone("IsAllFinite", [floats(3), np.array(values, np.float32)], 9, **attributes)
    assert got.shape == ()
    assert bool(got) is expected


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Affine", [floats(2, 3)], {"alpha": 2.0, "beta": 0.5}),
        ("ScaledTanh", [floats(2, 3)], {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", [floats(2, 3)], {"alpha": 2.0, "beta": 0.5}),
        ("ImageScaler", [floats(2, 3, 4, 5)], {"scale": 2.0, "bias": [0.1, 0.2, 0.3]}),
        ("Crop", [floats(2, 3, 6, 7)], {"border": [1, 2, 1, 1]}),
        ("Crop", [floats(2, 3, 6, 7)], {"border": [1, 2, 1, 1], "scale": [2, 3]}),
        ("MeanVarianceNormalization", [floats(2, 3, 4, 5)], {}),
        ("MeanVarianceNormalization", [floats(2, 3, 4, 5)], {"across_channels": 1}),
        ("MeanVarianceNormalization", [floats(2, 3, 4, 5)], {"normalize_variance": 0}),
        ("ThresholdedRelu", [floats(2, 3)], {"alpha": 0.3}),
        ("LayerNormalization", [floats(2, 3, 4), floats(4), floats(4)], {"axis": -1}),
        ("DynamicSlice", [floats(4, 5), np.array([1, -3], np.int64), np.array([3, 9], np.int64)], {}),
        ("DynamicSlice", [floats(4, 5), np.array([1], np.int64), np.array([-1], np.int64), np.array([1], np.int64)], {}),
    ],
)
def test_additions_to_old_opsets(op_type, inputs, attributes):
    compare(op_type, inputs, opset=8, attributes=attributes, atol=1e-4)


def test_scale_of_old_opsets():
    x = floats(2, 3)
    assert_same(run_alone("Scale", [x], domain="", opset=8, scale=3.0), x * np.float32(3), 1e-6, 0)
