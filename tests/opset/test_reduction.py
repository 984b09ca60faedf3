"""The reduction family against onnxruntime at every version it runs, and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType, schema_versions
from ort_sdk.opset import NumpyNamespace
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(9)
X = RNG.uniform(0.5, 3, (3, 4, 5))

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

FORMULAS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(np.sum(x, axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims)),
}


def axes_version(op_type):
    return 13 if op_type == "ReduceSum" else 18


def arguments(op_type, version, x, axes, **attributes):
    """Inputs and attributes: axes are an attribute up to some version, an input after it."""
    if axes is None:
        return [x], attributes
    if version < axes_version(op_type):
        return [x], attributes | {"axes": list(axes)}
    return [x, np.array(axes, np.int64)], attributes


def run(op_type, version, x, axes, **attributes):
    inputs, attributes = arguments(op_type, version, x, axes, **attributes)
    return run_sdk(*make_model(op_type, inputs, opset=version, attributes=attributes))[0]


def run_strict(op_type, version, x, axes, **attributes):
    inputs, attributes = arguments(op_type, version, x, axes, **attributes)
    output_types = [TensorElementType.from_numpy_dtype(x.dtype)]
    return run_kernel(op_type, inputs, output_types, opset=version, attributes=attributes)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, (1,), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("op_type", FORMULAS)
def test_formula_at_every_version(op_type, axes, keepdims, dtype):
    x = X.astype(dtype)
    expected = np.asarray(FORMULAS[op_type](x.astype(np.float64), axis=axes, keepdims=bool(keepdims))).astype(dtype)
    tolerance = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 1e-3}[dtype]
    for version in schema_versions(op_type):
        assert_same(run(op_type, version, x, axes, keepdims=keepdims), expected, tolerance, tolerance)
        if dtype is not np.float16:
            assert_same(run_strict(op_type, version, x, axes, keepdims=keepdims), expected, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("op_type", FORMULAS)
def test_as_onnxruntime(op_type, dtype):
    if op_type == "ReduceLogSumExp" and dtype is np.int32:
        dtype = np.float64  # onnxruntime truncates every exponential of an integer
    for version in (11, 13, 18):
        inputs, attributes = arguments(op_type, version, (X * 3).astype(dtype), (1,))
        compare(op_type, inputs, opset=version, attributes=attributes)


@pytest.mark.parametrize("op_type", FORMULAS)
def test_no_axes(op_type):
    x = X.astype(np.float32)
    version = axes_version(op_type)
    for axes in (None, ()):
        inputs, attributes = arguments(op_type, version, x, axes, noop_with_empty_axes=1)
        (actual,) = compare(op_type, inputs, opset=version, attributes=attributes)
        assert actual.shape == x.shape
        assert run(op_type, version, x, axes).shape == (1, 1, 1)


@pytest.mark.parametrize("op_type", FORMULAS)
def test_scalar_input(op_type):
    x = np.array(2.5, np.float32)
    expected = np.asarray(FORMULAS[op_type](x, axis=None, keepdims=False))
    assert_same(run(op_type, 18, x, None), expected.astype(np.float32), 1e-6, 0)


@pytest.mark.parametrize(
    ("op_type", "value"),
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceMean", np.nan),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)
def test_empty_sets(op_type, value):
    x = np.zeros((2, 0, 3), np.float32)
    for function in (run, run_strict):
        assert_same(function(op_type, 18, x, (1,)), np.full((2, 1, 3), value, np.float32), 0, 0)
        assert function(op_type, 18, x, (0,), keepdims=0).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_extremes_of_no_integers(dtype):
    x = np.zeros((0, 2), dtype)
    limits = np.iinfo(dtype)
    np.testing.assert_array_equal(run("ReduceMax", 18, x, (0,), keepdims=0), np.full(2, limits.min, dtype), strict=True)
    np.testing.assert_array_equal(run("ReduceMin", 18, x, (0,), keepdims=0), np.full(2, limits.max, dtype), strict=True)


def test_extremes_of_truth_values():
    x = np.array([[True, False], [True, True]])
    for function in (run, run_strict):
        assert function("ReduceMax", 20, x, (1,), keepdims=0).tolist() == [True, True]
        assert function("ReduceMin", 20, x, (1,), keepdims=0).tolist() == [False, True]


def test_mean_of_integers_is_truncated():
    x = np.array([[-3, -2], [3, 2], [-4, -2]], np.int32)
    for function in (run, run_strict):
        assert function("ReduceMean", 18, x, (1,), keepdims=0).tolist() == [-2, 2, -3]


def test_log_sum_exp_does_not_overflow():
    x = np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    expected = np.array([1000 + np.log(2), -np.inf, np.inf], np.float32)
    assert_same(run("ReduceLogSumExp", 18, x, (1,), keepdims=0), expected, 1e-6, 0)


def test_axis_out_of_range():
    with pytest.raises(InvalidArgument, match="axis 3"):
        run("ReduceSum", 13, X.astype(np.float32), (3,))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_arg(op_type, keepdims, axis):
    x = RNG.integers(0, 3, (3, 4, 5)).astype(np.float32)
    for opset in (1, 11, 12, 13):
        for select_last in (0, 1) if opset >= 12 else (0,):
            attributes = {"axis": axis, "keepdims": keepdims} | ({"select_last_index": 1} if select_last else {})
            (expected,) = compare(op_type, [x], opset=opset, attributes=attributes)
            (strict,) = run_kernel(op_type, [x], [TensorElementType.INT64], opset=opset, attributes=attributes)
            assert_same(strict, expected, 0, 0)


def test_arg_of_nothing():
    with pytest.raises(InvalidArgument, match="no elements"):
        run_kernel("ArgMax", [np.zeros((0, 2), np.float32)], [TensorElementType.INT64], opset=13)


@pytest.mark.parametrize(("keepdims", "shape"), [(0, (0, 3)), (1, (0, 1, 3))])
def test_extremes_that_are_not_wanted_need_no_elements(keepdims, shape):
    empty = np.zeros((0, 0, 3), np.float32)
    attributes = {"axis": 1, "keepdims": keepdims}
    (found,) = run_kernel("ArgMax", [empty], [TensorElementType.INT64], opset=13, attributes=attributes)
    assert found.shape == shape
    assert found.dtype == np.int64


def top_k_by_sorting(x, k, axis, largest):
    """Sort (key, index) pairs: the oracle for values with ties."""
    key = -x.astype(object) if largest else x.astype(object)
    order = np.apply_along_axis(lambda row: sorted(range(len(row)), key=lambda i: (row[i], i)), axis, key)
    indices = np.take(order, range(k), axis=axis)
    return np.take_along_axis(x, indices, axis), indices


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(dtype, axis, largest):
    x = RNG.integers(0, 6, (6, 7, 8)).astype(dtype)
    if np.dtype(dtype).kind == "i":
        x[0, 0, :2] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    values, indices = top_k_by_sorting(x, 4, axis, largest)
    inputs, attributes = [x, np.array([4], np.int64)], {"axis": axis, "largest": largest}
    element_type = TensorElementType.from_numpy_dtype(dtype)
    for actual in (
        run_sdk(*make_model("TopK", inputs, 2, opset=24, attributes=attributes)),
        run_kernel("TopK", inputs, [element_type, TensorElementType.INT64], opset=11, attributes=attributes),
    ):
        assert_same(actual[0], values, 0, 0)
        assert_same(actual[1], indices, 0, 0)


@pytest.mark.parametrize("axis", [0, -1])
def test_top_k_as_onnxruntime(axis):
    x = RNG.integers(0, 6, (6, 7)).astype(np.float32)
    compare("TopK", [x], 2, opset=1, attributes={"axis": axis, "k": 3})
    compare("TopK", [x, np.array([3], np.int64)], 2, opset=10, attributes={"axis": axis})
    compare("TopK", [x, np.array([3], np.int64)], 2, opset=11, attributes={"axis": axis, "largest": 0})


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_selecting_from_long_rows_keeps_the_order_of_equals(dtype, k):
    keys = RNG.integers(0, 50, (3, 2, 4000)).astype(dtype)
    np.testing.assert_array_equal(NumpyNamespace().smallest_indices(keys, k), np.argsort(keys, axis=-1, stable=True)[..., :k])


def test_selecting_beside_not_a_number():
    keys = np.full((2, 2000), np.nan, np.float32)
    keys[0, 5], keys[1, :100] = 1, 2
    expected = np.argsort(keys, axis=-1, stable=True)[..., :3]
    np.testing.assert_array_equal(NumpyNamespace().smallest_indices(keys, 3), expected)


@pytest.mark.parametrize("k", [-1, 6])
def test_top_k_out_of_range(k):
    with pytest.raises(InvalidArgument, match=f"k is {k}"):
        run_sdk(*make_model("TopK", [X.astype(np.float32), np.array([k], np.int64)], 2, opset=11))
