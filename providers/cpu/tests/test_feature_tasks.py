"""Columns chosen, scaled and normalized by compiled tasks: as the shared set does it."""

import numpy as np
import pytest

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
