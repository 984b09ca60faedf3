"""Softmax and normalizations of the device layer against NumPy in float64, with kernels for processors and for GPUs."""

import numpy as np
import pytest
from onnx import helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument
from ort_sdk.device.rows.program import LOG_SOFTMAX, ROOT_MEAN_SQUARE, SOFTMAX, STANDARDIZED
from ort_sdk.device.rows.result import row_result, row_result_with_values

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

CASES = [
    ((5, 7), (1,)),
    ((5, 7), (0,)),
    ((3, 1000), (1,)),
    ((2, 3, 5, 33), (1,)),
    ((4, 6, 18), (1, 2)),
    ((70, 3), (1,)),
    ((6,), (0,)),
]
LONG = ((2, 9001), (1,))
"""Rows that local memory does not hold."""


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _floats(shape, dtype="f4", seed=0):
    return (2 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def _softmax(x, axes):
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


def _standardized(x, axes, epsilon=1e-5):
    mean = x.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


def _numbers(shape, axes):
    return {"count": float(np.prod([shape[axis] for axis in axes])), "epsilon": 1e-5}


@pytest.mark.parametrize(("shape", "axes"), [*CASES, LONG])
def test_programs(xp, shape, axes):
    x = _floats(shape)
    wide, array = x.astype("f8"), xp.from_host(x)
    np.testing.assert_allclose(host(row_result(array, SOFTMAX, axes)), _softmax(wide, axes), rtol=2e-6, atol=1e-9)
    want = np.log(_softmax(wide, axes))
    np.testing.assert_allclose(host(row_result(array, LOG_SOFTMAX, axes)), want, rtol=2e-6, atol=2e-6)
    numbers = _numbers(shape, axes)
    y, mean, inverse = row_result_with_values(array, STANDARDIZED, axes, numbers)
    for got, want in zip((y, mean, inverse), _standardized(wide, axes), strict=True):
        np.testing.assert_allclose(host(got), want, rtol=5e-5, atol=2e-5)
    want = wide / np.sqrt((wide**2).mean(axis=axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(host(row_result(array, ROOT_MEAN_SQUARE, axes, numbers)), want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_is_before_and_after_is_in_the_kernel(xp, axis, monkeypatch):
    x, mask, scale = _floats((19, 6, 40)), _floats((6, 1), seed=1), _floats((40,), seed=2)
    array, factor, bias = xp.from_host(x), xp.from_host(scale), xp.from_host(mask)
    names = launches_of(xp, monkeypatch)
    got = host(xp.maximum(xp.softmax(array * 0.5 + bias, axis) * factor, 0.01))
    assert names == ["rows_softmax"]
    want = np.maximum(_softmax(x.astype("f8") * 0.5 + mask, axis) * scale, 0.01)
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-8)


@pytest.mark.parametrize("axis", [0, 1])
def test_other_orders_of_elements(xp, axis):
    x = _floats((40, 50))
    array = xp.from_host(x)
    for view, want in ((array[::-1, ::-2], x[::-1, ::-2]), (xp.permute_dims(array, (1, 0)), x.T), (array[3:, 5:], x[3:, 5:])):
        np.testing.assert_allclose(host(xp.softmax(view, axis)), _softmax(want.astype("f8"), axis), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_other_types(xp, dtype):
    x = _floats((6, 45), dtype)
    got = xp.softmax(xp.from_host(x), 1)
    assert got.dtype == np.dtype(dtype)
    tolerance = 1e-3 if dtype == "f2" else 1e-14
    np.testing.assert_allclose(host(got), _softmax(x.astype("f8"), 1), rtol=tolerance, atol=tolerance / 10)


def test_nan_stays_in_its_row_and_infinity_is_an_element(xp):
    x = _floats((5, 40))
    x[1, 3], x[2, 7] = np.nan, -np.inf
    got = host(xp.softmax(xp.from_host(x), 1))
    assert np.isnan(got[1]).all()
    assert got[2, 7] == 0
    np.testing.assert_allclose(got[[0, 2, 3, 4]], _softmax(x[[0, 2, 3, 4]].astype("f8"), 1), rtol=2e-6, atol=1e-9)


def test_an_input_that_is_read_again_is_written_on_the_way(xp, monkeypatch):
    x, skip = _floats((7, 48)), _floats((7, 48), seed=1)
    total = xp.from_host(x) + xp.from_host(skip)
    y = row_result(total, STANDARDIZED, [1], _numbers(x.shape, [1]))
    names = launches_of(xp, monkeypatch)
    got = host(y)
    np.testing.assert_array_equal(host(total), x + skip)
    assert names == ["rows_standardized"]
    np.testing.assert_allclose(got, _standardized((x + skip).astype("f8"), 1)[0], rtol=1e-5, atol=1e-5)


def test_a_result_is_made_before_its_input_is_overwritten(xp):
    x = _floats((4, 20))
    array = xp.from_host(x)
    y = xp.softmax(array, 1)
    array[:, 3:5] = 7.0
    np.testing.assert_allclose(host(y), _softmax(x.astype("f8"), 1), rtol=2e-6)
    array[...] = xp.softmax(array, 1)
    x[:, 3:5] = 7.0
    np.testing.assert_allclose(host(array), _softmax(x.astype("f8"), 1), rtol=2e-6, atol=1e-9)


def test_no_elements(xp):
    assert host(xp.softmax(xp.from_host(np.zeros((3, 0), "f4")), 1)).shape == (3, 0)


def _run(op_type, inputs, domain="", outputs=(1,), opset=21, **attributes):
    """What a session gives for a node; ``outputs`` says which of them it has."""
    names = [f"x{number}" if each is not None else "" for number, each in enumerate(inputs)]
    results = [f"y{number}" if is_wanted else "" for number, is_wanted in enumerate(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, inputs, strict=True)
        if name
    ]
    kind = values[0].type.tensor_type.elem_type
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info(name, kind, None) for name in results if name])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["OpenCLExecutionProvider", "CPUExecutionProvider"])
    feeds = {name: each for name, each in zip(names, inputs, strict=True) if name}
    first, second = session.run(None, feeds), session.run(None, feeds)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    return first


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_skip_layer_normalization(dtype):
    x, skip, bias = (_floats((2, 5, 48), dtype, seed) if seed < 2 else _floats((48,), dtype, seed) for seed in range(3))
    gamma, beta = _floats((48,), dtype, 3), _floats((48,), dtype, 4)
    y, total = _run("SkipLayerNormalization", [x, skip, gamma, beta, bias], "com.microsoft", outputs=[1, 0, 0, 1], epsilon=1e-5)
    want = x.astype("f8") + skip + bias
    tolerance = 1e-5 if dtype == "f4" else 1e-2
    np.testing.assert_allclose(total.astype("f8"), want, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(y.astype("f8"), _standardized(want, 2)[0] * gamma + beta, rtol=tolerance, atol=tolerance)
    (y, total) = _run("SkipSimplifiedLayerNormalization", [x, skip, gamma], "com.microsoft", outputs=[1, 0, 0, 1], epsilon=1e-5)
    want = x.astype("f8") + skip
    root = want / np.sqrt((want**2).mean(axis=2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y.astype("f8"), root * gamma, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(total.astype("f8"), want, rtol=tolerance, atol=tolerance)


def test_skip_layer_normalization_with_statistics():
    x, skip, gamma, beta = _floats((2, 5, 48)), _floats((2, 5, 48), seed=1), _floats((48,), seed=2), _floats((48,), seed=3)
    results = _run("SkipLayerNormalization", [x, skip, gamma, beta], "com.microsoft", outputs=[1, 1, 1, 1], epsilon=1e-5)
    y, mean, inverse = _standardized((x + skip).astype("f8"), 2)
    for got, want in zip(results, (y * gamma + beta, mean, inverse, x + skip), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(channels_last, activation):
    x, gamma, beta = _floats((2, 12, 3, 5)), _floats((12,), seed=1), _floats((12,), seed=2)
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
    attributes = {"groups": 3, "epsilon": 1e-5, "channels_last": channels_last, "activation": activation}
    (got,) = _run("GroupNorm", [given, gamma, beta], "com.microsoft", **attributes)
    want = _standardized(x.reshape(2, 3, -1).astype("f8"), 2)[0].reshape(x.shape)
    want = want * gamma[:, None, None] + beta[:, None, None]
    want = want / (1 + np.exp(-want)) if activation else want
    got = np.moveaxis(got, -1, 1) if channels_last else got
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_layer_normalization_of_no_elements_and_of_bad_shapes():
    (got,) = _run("LayerNormalization", [np.zeros((0, 8), "f4"), np.ones(8, "f4")])
    assert got.shape == (0, 8)
    with pytest.raises(InvalidArgument, match="scale"):
        _run("LayerNormalization", [np.zeros((2, 8), "f4"), np.ones(7, "f4")])
    with pytest.raises(InvalidArgument, match="must have shape"):
        _run("InstanceNormalization", [np.zeros((2, 8, 3), "f4"), np.ones(7, "f4"), np.ones(8, "f4")])
    inputs = [np.zeros((2, 8, 8, 6), "f4"), np.ones(6, "f4"), np.ones(6, "f4")]
    with pytest.raises(InvalidArgument, match="divide"):
        _run("GroupNorm", inputs, "com.microsoft", groups=4, activation=0)
