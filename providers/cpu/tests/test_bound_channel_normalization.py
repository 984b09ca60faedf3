"""InstanceNormalization bound to arrays of either layout, against sums in float64."""

import numpy as np
import pytest

SHAPES = [(2, 3, 7), (1, 5, 33, 21), (2, 20, 9, 8), (1, 16, 64, 65), (1, 2, 3, 4, 5)]


def expected(x, scale, shift, epsilon):
    axes, along = tuple(range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    root = np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)
    return centred / root * scale.reshape(along) + shift.reshape(along)


@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "pixels"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_channel_by_its_own_statistics(check, run_both, shape, is_last):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 3 + 5).astype(np.float32)
    if is_last:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    scale, shift = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
    check("InstanceNormalization", x, scale, shift, tolerance=1e-5, epsilon=1e-3)
    _, (found,) = run_both("InstanceNormalization", x, scale, shift, epsilon=1e-3)
    np.testing.assert_allclose(found, expected(x, scale, shift, 1e-3), rtol=1e-5, atol=1e-5)


def test_other_types_and_no_samples(check):
    rng = np.random.default_rng(0)
    for shape, dtype in (((2, 3, 5, 4), np.float64), ((0, 3, 4), np.float32)):
        parameters = [rng.standard_normal(3).astype(dtype) for _ in range(2)]
        check("InstanceNormalization", rng.standard_normal(shape).astype(dtype), *parameters, tolerance=1e-6)
