"""The bound on rounding that tests of kernels use: honest sums pass in any order, a wrong term or type does not."""

import numpy as np
import pytest

from ort_sdk.testing.error_bounds import assert_sums_close, sum_error_bound

RNG = np.random.default_rng(0)


def _products(count):
    return RNG.standard_normal(count).astype(np.float32), RNG.standard_normal(count).astype(np.float32)


def _one_by_one(first, second, order):
    total = np.float32(0)
    for index in order:
        total += first[index] * second[index]
    return total


@pytest.mark.parametrize("count", [1, 3, 100, 4000])
@pytest.mark.parametrize("direction", [1, -1])
def test_sums_in_any_order_pass(count, direction):
    first, second = _products(count)
    wide = first.astype(np.float64) * second
    found = _one_by_one(first, second, range(count)[::direction])
    assert_sums_close(found, wide.sum(), np.abs(wide).sum(), count)


def test_a_term_that_is_missing_fails():
    first, second = _products(100)
    wide = first.astype(np.float64) * second
    with pytest.raises(AssertionError, match="1 of 1 results are farther"):
        assert_sums_close(_one_by_one(first, second, range(99)), wide.sum(), np.abs(wide).sum(), 100)


def test_products_in_float16_fail_as_float32():
    values = RNG.uniform(1, 2, 50).astype(np.float32)
    found = (values.astype(np.float16) ** 2).astype(np.float32)
    with pytest.raises(AssertionError):
        assert_sums_close(found, values.astype(np.float64) ** 2, values.astype(np.float64) ** 2, 1)
    bound = sum_error_bound(values.astype(np.float64) ** 2, 4, np.float16)
    assert (np.abs(found - values.astype(np.float64) ** 2) <= bound).all()


def test_a_result_may_be_rounded_to_a_smaller_type():
    exact = RNG.uniform(1, 2, 50)
    assert_sums_close(exact.astype(np.float16), exact, exact, 1)


def test_nan_where_a_number_belongs_fails():
    with pytest.raises(AssertionError, match=r"at \(1,\)"):
        assert_sums_close(np.array([1, np.nan], np.float32), [1.0, 1.0], [1.0, 1.0], 1)


def test_another_shape_fails():
    with pytest.raises(AssertionError, match="shape"):
        assert_sums_close(np.zeros((2, 1), np.float32), np.zeros(2), np.zeros(2), 1)
