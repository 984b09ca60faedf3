"""Columns chosen, scaled, normalized, completed and encoded by compiled tasks: as the shared set does it."""

import numpy as np
import pytest
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot

from ort_sdk.api import InvalidArgument

DOMAIN = "ai.onnx.ml"


def _rows(*shape, dtype=np.float32):
    return (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7)])
@pytest.mark.parametrize("indices", [[0], [[6, 2, 2, 0]], list(range(7))])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_array_feature_extractor(check, dtype, shape, indices, constants):
    check("ArrayFeatureExtractor", _rows(*shape, dtype=dtype), np.array(indices, np.int64), domain=DOMAIN, constants=constants)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", [(5,), (1, 1), (9, 16), (400, 33)])
def test_normalizer(check, norm, shape):
    x = _rows(*shape)
    x[:1] = 0
    check("Normalizer", x, domain=DOMAIN, norm=norm, tolerance=1e-6)


@pytest.mark.parametrize("count", [1, 21])
@pytest.mark.parametrize("shape", [(21,), (1, 21), (300, 21)])
def test_scaler(check, count, shape):
    offset, scale = _rows(count).tolist(), _rows(count, dtype=np.float32).tolist()
    check("Scaler", _rows(*shape), domain=DOMAIN, offset=offset, scale=scale, tolerance=1e-6)


def test_other_types_and_empty_arrays(check):
    check("Normalizer", _rows(0, 4), domain=DOMAIN, norm="L2")
    check("Scaler", _rows(0, 4), domain=DOMAIN, offset=[1.0], scale=[2.0])


@pytest.mark.parametrize("replaced", [np.nan, 0.0, -2.5, np.inf])
@pytest.mark.parametrize("count", [1, 21])
@pytest.mark.parametrize("shape", [(21,), (1, 21), (300, 21)])
def test_imputer(check, replaced, count, shape):
    x = _rows(*shape)
    for position, value in enumerate((np.nan, 0.0, -0.0, -2.5, np.inf, -np.inf)):
        x[..., position::7] = value
    values = _rows(count).tolist()
    check("Imputer", x, domain=DOMAIN, imputed_value_floats=values, replaced_value_float=float(replaced))


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@pytest.mark.parametrize("categories", [[7], [3, -4, 5, 3], list(range(-9, 9))])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (40, 3), (0, 2)])
def test_one_hot_encoder(check, dtype, categories, shape):
    x = np.random.default_rng(0).integers(-10, 10, shape).astype(dtype)
    if x.size > 5:
        extreme = [np.nan, np.inf, -np.inf, 3.9, -4.9, 3e18] if dtype is np.float32 else [-(1 << 63), (1 << 63) - 1]
        x.reshape(-1)[: len(extreme)] = extreme
    check("OneHotEncoder", x, domain=DOMAIN, cats_int64s=categories)


def test_unknown_categories_that_are_not_allowed(make_kernel):
    kernel = make_kernel("OneHotEncoder", (np.array([1, 5]),), {"cats_int64s": [1, 2], "zeros": 0}, DOMAIN, 1, (), ())
    with pytest.raises(ValueError, match="is no known category"):
        kernel.compute(np.array([1, 5]))


@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (40, 3), (0, 2)])
@pytest.mark.parametrize("others", [0, 70])
def test_one_hot_encoder_of_strings(check, zeros, shape, others):
    x = np.random.default_rng(0).choice(["a", "bb", "c"] if zeros == 0 else ["a", "bb", "c", "", "other"], shape).astype(object)
    categories = ["bb", "a", "c", "a", *map(str, range(others))]
    check("OneHotEncoder", x, domain=DOMAIN, cats_strings=categories, zeros=zeros)


@pytest.mark.parametrize("categories", [["a"], ["a", *map(str, range(70))]])
def test_unknown_strings_that_are_not_allowed(make_kernel, categories):
    x, out = np.array(["a", "b"], object), np.empty((2, len(categories)), np.float32)
    kernel = make_kernel("OneHotEncoder", (x,), {"cats_strings": categories, "zeros": 0}, DOMAIN, 1, (), ())
    with pytest.raises(ValueError, match="is no known category"):
        kernel.bind([FixedSlot(x)], [FixedSlot(out)])()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "PROBIT"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (70, 5)])
def test_linear_regressor(check, run_both, transform, targets, shape):
    coefficients, intercepts = _rows(targets, 5) / 50, [0.5] * targets
    attributes = {"coefficients": coefficients.ravel().tolist(), "intercepts": intercepts, "targets": targets}
    inputs = (_rows(*shape) / 50,)
    if transform == "NONE" or (targets == 1 and transform != "PROBIT"):
        check("LinearRegressor", *inputs, domain=DOMAIN, tolerance=1e-6, **attributes, post_transform=transform)
    else:
        assert run_both("LinearRegressor", *inputs, domain=DOMAIN, **attributes, post_transform=transform)[1] is None


@pytest.mark.parametrize("index", [-1, 7])
def test_features_that_are_not_there(make_kernel, index):
    x, indices, out = _rows(1, 7), np.array([index], np.int64), np.empty((1, 1), np.float32)
    kernel = make_kernel("ArrayFeatureExtractor", (x, indices), {}, DOMAIN, 1, (), ())
    call = kernel.bind([FixedSlot(x), FixedSlot(indices)], [FixedSlot(out)])
    with pytest.raises(InvalidArgument):
        call()
