"""Pooling of ai.onnx against onnxruntime, and over another array library."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import InvalidArgument, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_reference, run_sdk

RNG = np.random.default_rng(4)
FLOAT, INT64 = TensorElementType.FLOAT, TensorElementType.INT64


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


PADDINGS = [
    {"auto_pad": "NOTSET"},
    {"pads": [1, 0, 0, 1]},
    {"pads": [1, 1, 1, 1]},
    {"auto_pad": "SAME_UPPER"},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
]
WINDOWS = [
    {"kernel_shape": kernel, "strides": strides}
    for kernel, strides in itertools.product(([3, 2], [2, 3]), ([1, 1], [2, 2], [3, 2]))
]


@pytest.mark.parametrize("opset", [8, 10, 11, 12, 22])
@pytest.mark.parametrize("padding", PADDINGS, ids=str)
def test_max_pool(padding, opset):
    for window, ceil_mode, order in itertools.product(WINDOWS, (0, 1), (0, 1)):
        attributes = {**window, **padding, "storage_order": order, **({"ceil_mode": ceil_mode} if opset >= 10 else {})}
        compare("MaxPool", [normal(2, 2, 8, 7)], 2, opset=opset, attributes=attributes)


@pytest.mark.parametrize("opset", [7, 10, 11, 19, 22])
@pytest.mark.parametrize("padding", PADDINGS, ids=str)
def test_average_pool(padding, opset):
    for window, ceil_mode, include in itertools.product(WINDOWS, (0, 1), (0, 1)):
        attributes = {**window, **padding, "count_include_pad": include, **({"ceil_mode": ceil_mode} if opset >= 10 else {})}
        compare("AveragePool", [normal(2, 2, 8, 7)], opset=opset, attributes=attributes)


@pytest.mark.parametrize("opset", [2, 11, 18, 22])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p, opset):
    for window, padding in itertools.product(WINDOWS, PADDINGS):
        attributes = {**window, **padding, "p": p, **({"ceil_mode": 1} if opset >= 18 else {})}
        compare("LpPool", [normal(2, 2, 8, 7)], opset=opset, attributes=attributes, rtol=1e-4)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (3, 2)])
@pytest.mark.parametrize("padding", [[0, 0, 0, 0], [1, 0, 1, 1]], ids=str)
def test_windows_larger_than_the_input_count_once_where_sizes_are_rounded_up(op_type, size, padding):
    attributes = {"kernel_shape": [4, 4], "strides": [4, 4], "pads": padding, "ceil_mode": 1}
    compare(op_type, [normal(2, 17, *size)], opset=22, attributes=attributes)


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 1], "ceil_mode": 1},
        {"kernel_shape": [4, 2], "strides": [3, 1], "pads": [0, 0, 1, 0]},
        {"kernel_shape": [4, 2], "strides": [3, 1], "auto_pad": "VALID"},
        {"kernel_shape": [2, 2], "strides": [3, 1], "dilations": [2, 1]},
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [4, 2], "strides": [2, 1]},
    ],
)
def test_a_window_may_reach_over_the_end_of_its_input_by_less_than_its_stride(op_type, channels, attributes):
    model, feeds = make_model(op_type, [normal(1, channels, 2, 3)], opset=19, attributes=attributes)
    (expected,) = run_reference(model, feeds)
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(4):
        assert_same(session.run(None, feeds)[0], expected, 1e-6, 1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 2, 2), (1, 16, 40, 2)])
def test_indices_of_a_window_that_reaches_over_the_end(shape):
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2]}
    model, feeds = make_model("MaxPool", [normal(*shape)], 2, opset=12, attributes=attributes)
    expected = run_reference(model, feeds)
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(4):
        for got, want in zip(session.run(None, feeds), expected, strict=True):
            assert_same(got, want, 0, 0)


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
def test_there_must_be_something_to_pool(op_type):
    model, feeds = make_model(op_type, [normal(1, 1, 0, 5)], opset=19, attributes={"kernel_shape": [2, 2], "strides": [2, 2]})
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(4):
        with pytest.raises(InvalidArgument, match="nothing to pool"):
            session.run(None, feeds)


def test_first_versions_agree_with_the_next_ones():
    x, attributes = normal(1, 2, 6, 6), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    for op_type, later, extra in (("AveragePool", 7, {}), ("LpPool", 2, {"p": 3}), ("MaxPool", 8, {})):
        first = {**attributes, **{name: float(value) for name, value in extra.items()}}
        (old,) = run_sdk(*make_model(op_type, [x], opset=1, attributes=first, output_types=[1]))
        (new,) = run_sdk(*make_model(op_type, [x], opset=later, attributes={**attributes, **extra}, output_types=[1]))
        assert_same(old, new, 0, 0)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 2, 9), {"kernel_shape": [3], "dilations": [2], "pads": [1, 1]}),
        ((2, 2, 9, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]}),
        ((2, 2, 5, 6, 7), {"kernel_shape": [3, 2, 2], "dilations": [2, 1, 1], "storage_order": 1}),
        ((2, 2, 4, 4), {"kernel_shape": [1, 1], "strides": [2, 2]}),
        ((2, 2, 4, 4), {"kernel_shape": [1, 1]}),
    ],
)
def test_max_pool_of_other_ranks_and_dilations(shape, attributes):
    x = normal(*shape)
    y, indices = compare("MaxPool", [x], 2, opset=12, attributes=attributes)
    if not attributes.get("storage_order"):
        np.testing.assert_array_equal(x.reshape(-1)[indices], y)
    results = run_kernel("MaxPool", [x], [FLOAT, INT64], opset=12, attributes=attributes)
    assert_same(results[0], y, 0, 0)
    assert_same(results[1], indices, 0, 0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_integers(dtype):
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, (1, 2, 6, 6)).astype(dtype)
    compare("MaxPool", [x], 2, opset=12, attributes={"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]})


def test_max_pool_takes_the_first_of_equal_elements():
    x = np.zeros((1, 1, 4, 4), np.float32)
    _, indices = compare("MaxPool", [x], 2, opset=12, attributes={"kernel_shape": [2, 2], "strides": [2, 2]})
    assert indices.reshape(-1).tolist() == [0, 2, 8, 10]


def test_average_pool_with_dilations():
    attributes = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]}
    compare("AveragePool", [normal(2, 2, 9, 9)], opset=19, attributes=attributes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "pads"),
    [((1, 2, 9), [3], [2], [2]), ((2, 3, 6, 5), [4, 3], [1, 2], [3, 1]), ((1, 2, 5, 4, 6), [4, 1, 3], [2, 1, 1], [3, 0, 2])],
    ids=str,
)
def test_the_least_numbers_of_a_type_are_found_behind_padding(dtype, shape, kernel, strides, pads):
    x = np.where(RNG.random(shape) < 0.6, np.iinfo(dtype).min, 3).astype(dtype)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads]}
    y, indices = compare("MaxPool", [x], 2, opset=12, attributes=attributes)
    np.testing.assert_array_equal(x.reshape(-1)[indices], y)


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool"])
def test_sums_over_another_library(op_type):
    x, attributes = normal(2, 2, 9, 8), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}
    (result,) = run_kernel(op_type, [x], [FLOAT], opset=22, attributes=attributes)
    assert_same(result, run_sdk(*make_model(op_type, [x], opset=22, attributes=attributes, output_types=[1]))[0], 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [("GlobalAveragePool", 1), ("GlobalAveragePool", 22), ("GlobalMaxPool", 1), ("GlobalMaxPool", 22), ("GlobalLpPool", 2)],
)
def test_global_pools(op_type, opset):
    for shape in ((2, 3, 4, 5), (2, 3, 7), (1, 2, 3, 4, 2)):
        (result,) = compare(op_type, [normal(*shape)], opset=opset, rtol=1e-4)
        assert result.shape == (*shape[:2], *(1 for _ in shape[2:]))


def test_global_lp_pool_with_another_power_over_another_library():
    x = normal(2, 3, 4, 5)
    (result,) = run_kernel("GlobalLpPool", [x], [FLOAT], opset=22, attributes={"p": 3})
    expected = np.sum(np.abs(x.astype(np.float64)) ** 3, axis=(2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("library", ["session", "other"])
def test_max_unpool_inverts_max_pool(library):
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = normal(2, 3, 8, 8)
    y, indices = run_kernel("MaxPool", [x], [FLOAT, INT64], opset=12, attributes=attributes)
    expected = np.zeros(x.size, np.float32)
    expected[indices.reshape(-1)] = y.reshape(-1)
    for size in ((8, 8), (9, 10)):
        inputs = [y, indices, np.array([2, 3, *size])]
        if library == "session":
            (result,) = run_sdk(*make_model("MaxUnpool", inputs, opset=11, attributes=attributes, output_types=[1]))
        else:
            (result,) = run_kernel("MaxUnpool", inputs, [FLOAT], opset=22, attributes=attributes)
        np.testing.assert_array_equal(result[:, :, :8, :8].reshape(-1), expected)
        assert result.shape[2:] == size


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("MaxPool", [normal(2, 3)], {"kernel_shape": [2]}),
        ("AveragePool", [normal(1, 1, 4, 4)], {"kernel_shape": [2]}),
        ("LpPool", [normal(1, 1, 4, 4)], {"kernel_shape": [6, 6]}),
        ("MaxUnpool", [normal(1, 1, 2, 2), np.zeros((1, 1, 2, 1), np.int64)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ],
)
def test_what_does_not_fit_is_refused(op_type, inputs, attributes):
    with pytest.raises(InvalidArgument):
        run_kernel(op_type, inputs, [FLOAT], opset=22, attributes=attributes)


@pytest.mark.parametrize(
    "attributes", [{"kernel_shape": [3, 2], "strides": [2, 2]}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}]
)
def test_max_pool_with_indices_passes_over_nan(attributes):
    x = normal(2, 2, 9, 8)
    x[x > 0.5] = np.nan
    model, feeds = make_model("MaxPool", [x], 2, opset=22, attributes=attributes, output_types=[FLOAT, INT64])
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pads, strides = attributes.get("pads", [0, 0])[:2], attributes.get("strides", [1, 1])
    for _ in range(5):
        largest, indices = session.run(None, feeds)
        for index in np.ndindex(*largest.shape):
            begins = [at * step - pad for at, step, pad in zip(index[2:], strides, pads, strict=True)]
            rows, columns = (
                slice(max(0, begin), begin + size) for begin, size in zip(begins, attributes["kernel_shape"], strict=True)
            )
            window = x[(*index[:2], rows, columns)]
            known = window[~np.isnan(window)]
            np.testing.assert_equal(largest[index], known.max() if known.size else np.nan)
            np.testing.assert_equal(x.reshape(-1)[indices[index]], largest[index])
