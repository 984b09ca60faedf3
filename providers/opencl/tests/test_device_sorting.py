"""Sorting, selection and running sums of the device layer against NumPy, with kernels for processors and for GPUs."""

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

SIZES = [1, 2, 33, 1000, 2048, 5003]
"""Rows with and without tails; the last one is longer than what local memory of a GPU's class sorts."""
TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f8", "f2", "?"]


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _rows(shape, dtype="f4", seed=0):
    """Numbers of which many are equal."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    low = -40 if kind.kind in "if" else 0
    return rng.integers(low, 2 if kind.kind == "b" else 40, shape).astype(kind)


def _descending(x):
    """Positions that sort each row, largest first; equal ones keep their order, and NaN is last."""
    keys = np.where(np.isnan(x), np.inf, -x)
    return np.lexsort((np.broadcast_to(np.arange(x.shape[-1]), x.shape), keys, np.isnan(x)), axis=-1)


@pytest.mark.parametrize("n", SIZES)
def test_sorting_keeps_the_order_of_equal_elements(xp, n):
    x = _rows((3, n))
    if n > 4:
        x[0, [1, 3]], x[1, n // 2], x[2, n - 1], x[2, 0] = np.nan, np.nan, -np.inf, np.inf
        x[0, 4], x[0, 2] = -0.0, 0.0
    array = xp.from_host(x)
    np.testing.assert_array_equal(host(xp.argsort(array, axis=1)), np.argsort(x, axis=1, stable=True))
    np.testing.assert_array_equal(host(xp.argsort(array, axis=-1, descending=True)), _descending(x))
    np.testing.assert_array_equal(host(xp.sort(array, axis=1)), np.sort(x, axis=1))


@pytest.mark.parametrize("dtype", TYPES)
def test_types(xp, dtype):
    x = _rows((2, 300), dtype)
    array = xp.from_host(x)
    np.testing.assert_array_equal(host(xp.argsort(array, axis=1)), np.argsort(x, axis=1, stable=True))
    np.testing.assert_array_equal(host(xp.smallest_indices(array, 7)), np.argsort(x, axis=1, stable=True)[:, :7])


def test_bounds_of_integers(xp):
    for dtype in ("i8", "u8", "u4"):
        limits = np.iinfo(dtype)
        x = np.array([[limits.max, limits.min, 1, limits.max - 1, limits.min]], dtype)
        np.testing.assert_array_equal(host(xp.argsort(xp.from_host(x), axis=1)), np.argsort(x, axis=1, stable=True))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (7, 3), (1000, 1), (1000, 64), (1000, 65), (9001, 20), (70, 69), (70, 70)])
def test_selection(xp, n, k):
    x = _rows((3, n))
    if n > 60:
        x[0, [1, 3]], x[1, 5], x[2] = np.nan, -np.inf, np.nan
    array = xp.from_host(x)
    got = host(xp.smallest_indices(array, k))
    assert got.shape == (3, k)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.argsort(x, axis=1, stable=True)[:, :k])


def test_selection_from_more_than_one_round_of_parts(xp):
    x = np.random.default_rng(3).permutation(300_000).astype("f4").reshape(1, -1)
    np.testing.assert_array_equal(host(xp.smallest_indices(xp.from_host(-x), 64)), np.argsort(-x, axis=1)[:, :64])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_views_expressions_and_other_axes(xp, axis):
    x = _rows((5, 34, 6))
    array = xp.from_host(x)
    got = host(xp.argsort(xp.abs(array[:, ::-2, :]) * 2.0, axis=axis))
    np.testing.assert_array_equal(got, np.argsort(np.abs(x[:, ::-2, :]), axis=axis, stable=True))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u1"])
def test_negated_numbers_and_inverted_bits_need_no_kernel_of_their_own(xp, dtype, monkeypatch):
    x = _rows((3, 70), dtype)
    if dtype[0] == "f":
        x[0, 3] = np.nan
    array = xp.from_host(x)
    names = launches_of(xp, monkeypatch)
    turned, want = (-array, -x) if dtype[0] == "f" else (~array, ~x)
    np.testing.assert_array_equal(host(xp.smallest_indices(turned, 9)), np.argsort(want, axis=1, stable=True)[:, :9])
    np.testing.assert_array_equal(host(xp.argsort(turned, axis=1)), np.argsort(want, axis=1, stable=True))
    assert names.count("elementwise") == (2 if dtype == "f2" else 0)


def test_nothing_to_sort(xp):
    empty = xp.from_host(np.zeros((3, 0), "f4"))
    assert host(xp.argsort(empty, axis=1)).shape == (3, 0)
    assert host(xp.smallest_indices(xp.from_host(np.zeros((3, 4), "f4")), 0)).shape == (3, 0)
    assert host(xp.smallest_indices(xp.from_host(np.zeros((0, 4), "f4")), 2)).shape == (0, 2)


@pytest.mark.parametrize(("shape", "axis"), [((3, 5), 1), ((3, 5), 0), ((2, 1000), 1), ((2, 1000, 3), 1), ((20003,), 0)])
def test_running_sums(xp, shape, axis):
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    array = xp.from_host(x)
    want = np.cumsum(x.astype("f8"), axis=axis)
    bound = 2.0**-24 * shape[axis] * np.cumsum(np.abs(x.astype("f8")), axis=axis)
    got = host(xp.cumulative_sum(array, axis=axis))
    assert got.dtype == np.float32
    assert np.all(np.abs(got - want) <= bound)
    whole = _rows(shape, "i4")
    got = host(xp.cumulative_sum(xp.from_host(whole), axis=axis, include_initial=True))
    start = np.zeros((*shape[:axis], 1, *shape[axis + 1 :]), np.int64)
    np.testing.assert_array_equal(got, np.concatenate([start, np.cumsum(whole, axis=axis, dtype=np.int64)], axis=axis))


def test_running_products_wrap_around_and_halves_are_summed_in_float32(xp):
    x = _rows((2, 300), "i8") * 2 + 1
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(host(xp.cumulative_prod(xp.from_host(x), axis=1)), np.cumprod(x, axis=1))
    halves = np.full((2, 4000), 0.25, "f2")
    np.testing.assert_array_equal(host(xp.cumulative_sum(xp.from_host(halves), axis=1))[:, -1], [1000, 1000])


def test_running_along_no_axis_is_refused(xp):
    array = xp.from_host(np.zeros((3, 2), "f4"))
    with pytest.raises(InvalidArgument, match="name an axis"):
        xp.cumulative_sum(array)
    with pytest.raises(InvalidArgument, match="axes"):
        xp.cumulative_sum(array, axis=2)
