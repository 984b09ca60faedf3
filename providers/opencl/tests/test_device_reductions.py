"""Reductions of the device layer against NumPy in float64, with kernels for processors and for GPUs."""

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument
from ort_sdk.device.namespace.reductions import positions

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

EPSILON = 2.0**-24
"""Half a unit in the last place of 1 in float32."""
SHAPES = [
    ((5, 7), 1),
    ((5, 7), 0),
    ((3, 1000), 1),
    ((1000, 3), 0),
    ((130, 33), 0),
    ((2, 3, 37), (0, 2)),
    ((2, 70, 5, 3), (1, 2)),
    ((4, 17, 19), None),
    ((1,), 0),
    ((300, 2), 1),
    ((40000,), 0),
    ((2, 20011), 1),
    ((20011, 2), 0),
    ((3, 70, 128), 1),
    ((9000, 16), 0),
]


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _floats(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _most_error(x, axis, keepdims=False):
    """What sums in blocks may be off by: a few hundred roundings of the sum of magnitudes, and never more than the elements'."""
    count = x.size // max(1, np.sum(x, axis=axis).size)
    roundings = min(count, 300) + 40
    return roundings * EPSILON * np.sum(np.abs(x.astype("f8")), axis=axis, keepdims=keepdims) + 1e-30


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_sums_and_extremes_of_float32(xp, shape, axis):
    x = _floats(shape)
    array = xp.from_host(x)
    got = host(xp.sum(array, axis=axis))
    assert got.dtype == np.float32
    assert np.all(np.abs(got - x.astype("f8").sum(axis=axis)) <= _most_error(x, axis))
    np.testing.assert_array_equal(host(xp.max(array, axis=axis, keepdims=True)), x.max(axis=axis, keepdims=True))
    np.testing.assert_array_equal(host(xp.min(array, axis=axis)), x.min(axis=axis))


def test_a_sum_of_a_million_equal_numbers_keeps_its_digits(xp):
    x = np.full(1 << 20, 0.1, "f4")
    got = float(host(xp.sum(xp.from_host(x))))
    assert abs(got - x.astype("f8").sum()) <= 1e-6 * x.astype("f8").sum()
    columns = np.full((1 << 20, 2), 0.1, "f4")
    np.testing.assert_allclose(host(xp.sum(xp.from_host(columns), axis=0)), columns.astype("f8").sum(0), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f8", "f2"])
def test_all_types(xp, dtype):
    shape, axis = ((45, 6), 0) if dtype[1] in "28" else ((3, 20000), 1)
    rng = np.random.default_rng(1)
    kind = np.dtype(dtype)
    x = rng.standard_normal(shape).astype(kind) if kind.kind == "f" else rng.integers(0, 100, shape).astype(kind)
    if kind.kind == "i":
        x = (x - kind.type(50)).astype(kind)
    array = xp.from_host(x)
    np.testing.assert_array_equal(host(xp.max(array, axis=axis)), x.max(axis=axis))
    np.testing.assert_array_equal(host(xp.min(array, axis=axis)), x.min(axis=axis))
    np.testing.assert_array_equal(host(xp.argmax(array, axis=axis)), x.argmax(axis=axis))
    np.testing.assert_array_equal(host(xp.argmin(array, axis=axis)), x.argmin(axis=axis))
    if kind.kind != "f":
        want = x.sum(axis=axis)
        got = host(xp.sum(array, axis=axis))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(host(xp.prod(array, axis=axis)), x.prod(axis=axis))
    elif kind == np.float64:
        np.testing.assert_allclose(host(xp.sum(array, axis=axis)), x.sum(axis=axis), rtol=1e-12, atol=1e-12)


def test_extremes_of_integers_start_from_the_bounds_of_their_type(xp):
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        limits = np.iinfo(dtype)
        x = np.array([[limits.min, limits.min], [limits.max, limits.max]], dtype)
        array = xp.from_host(x)
        np.testing.assert_array_equal(host(xp.max(array, axis=1)), x.max(axis=1))
        np.testing.assert_array_equal(host(xp.min(array, axis=1)), x.min(axis=1))


@pytest.mark.parametrize(("shape", "axis"), [((6, 45), 1), ((45, 6), 0), ((2, 3000), 1)])
def test_bools(xp, shape, axis):
    x = np.random.default_rng(2).random(shape) > 0.97
    x[..., 0] = True
    array = xp.from_host(x)
    np.testing.assert_array_equal(host(xp.any(array, axis=axis)), x.any(axis=axis))
    np.testing.assert_array_equal(host(xp.all(array, axis=axis)), x.all(axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinity(xp, axis):
    x = _floats((40, 37))
    x[3, 5], x[7, 9], x[2, 2], x[8, 30] = np.nan, np.nan, np.inf, -np.inf
    x[:, 11], x[13] = -np.inf, np.inf
    array = xp.from_host(x)
    np.testing.assert_array_equal(host(xp.max(array, axis=axis)), x.max(axis=axis))
    np.testing.assert_array_equal(host(xp.min(array, axis=axis)), x.min(axis=axis))
    np.testing.assert_array_equal(host(xp.argmax(array, axis=axis)), x.argmax(axis=axis))
    np.testing.assert_array_equal(host(xp.argmin(array, axis=axis)), x.argmin(axis=axis))


@pytest.mark.parametrize(("shape", "axis"), [((70, 200), 0), ((70, 64), 0), ((70, 200), 1), ((40000,), None), ((3, 4, 5), 1)])
def test_of_equal_elements_the_first_is_found(xp, shape, axis):
    x = np.random.default_rng(3).integers(0, 3, shape).astype("f4")
    array = xp.from_host(x)
    found = host(xp.argmax(array, axis=axis))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, x.argmax(axis=axis))
    np.testing.assert_array_equal(host(xp.argmin(array, axis=axis, keepdims=True)), x.argmin(axis=axis, keepdims=True))
    from_end = np.flip(x, axis).argmin(axis=axis)
    last = (x.size if axis is None else x.shape[axis]) - 1 - from_end
    np.testing.assert_array_equal(host(positions("min", array, axis, False, last=True)), last)
    doubled = array * 2.0 + 1.0
    np.testing.assert_array_equal(host(xp.argmax(doubled, axis=axis)), x.argmax(axis=axis))
    flipped = xp.flip(array, axis=axis)
    np.testing.assert_array_equal(host(xp.argmax(flipped, axis=axis)), np.flip(x, axis).argmax(axis=axis))


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "i8"])
@pytest.mark.parametrize(("shape", "axis"), [((200_000,), 0), ((2, 70_001), 1), ((70_001, 2), 0), ((90_000, 8), 0)])
def test_positions_in_long_rows(xp, shape, axis, dtype):
    """Of all equal ones, of ones in the first and the last part, and of NaN."""
    along, kind = shape[axis], np.dtype(dtype)
    for places in ([], [0], [along - 1], [4095, 4096], [17, along - 40_000], [along // 2]):
        x = np.zeros(shape, kind)
        x[(slice(None),) * axis + (places,)] = 5
        array = xp.from_host(x)
        np.testing.assert_array_equal(host(xp.argmax(array, axis=axis)), x.argmax(axis=axis))
        np.testing.assert_array_equal(host(xp.argmin(-array, axis=axis)), x.argmax(axis=axis))
        last = along - 1 - np.flip(x, axis).argmax(axis=axis)
        np.testing.assert_array_equal(host(positions("max", array, axis, False, last=True)), last)
        if kind.kind == "f" and places:
            x[(slice(None),) * axis + (min(places[0] + 5000, along - 1),)] = np.nan
            np.testing.assert_array_equal(host(xp.argmax(xp.from_host(x), axis=axis)), x.argmax(axis=axis))
            np.testing.assert_array_equal(host(xp.argmin(xp.from_host(x), axis=axis)), x.argmin(axis=axis))


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), None])
def test_views_and_expressions_are_computed_as_they_are_loaded(xp, axis, monkeypatch):
    x, row, column = _floats((34, 7, 40)), _floats((40,), seed=1), _floats((7, 1), seed=2)
    array = xp.from_host(x)
    view, want = array[::-2, :, 3:-1:3], x[::-2, :, 3:-1:3]
    value = xp.abs(view * xp.from_host(row)[3:-1:3] + 1.5) - xp.from_host(column)
    want = np.abs(want * row[3:-1:3] + np.float32(1.5)) - column
    names = launches_of(xp, monkeypatch)
    got = host(xp.sum(value, axis=axis))
    assert all(name.startswith("rows_") for name in names)
    assert np.all(np.abs(got - want.astype("f8").sum(axis=axis)) <= 2 * _most_error(want, axis) + 1e-4)
    np.testing.assert_array_equal(host(xp.max(xp.permute_dims(array, (2, 0, 1)), axis=0)), np.transpose(x, (2, 0, 1)).max(axis=0))


def test_nothing_is_reduced_to_what_changes_nothing(xp):
    array = xp.from_host(np.zeros((3, 0, 2), "f4"))
    np.testing.assert_array_equal(host(xp.sum(array, axis=1)), np.zeros((3, 2)))
    np.testing.assert_array_equal(host(xp.prod(array, axis=1)), np.ones((3, 2)))
    assert host(xp.max(array, axis=0)).shape == (0, 2)
    assert host(xp.argmax(array, axis=0)).shape == (0, 2)
    with pytest.raises(InvalidArgument, match="no elements"):
        xp.max(array, axis=1)
    with pytest.raises(InvalidArgument, match="no elements"):
        xp.argmax(array, axis=1)


def test_axes_that_are_not_there_are_refused(xp):
    array = xp.from_host(np.zeros((3, 2), "f4"))
    with pytest.raises(InvalidArgument, match="axes"):
        xp.sum(array, axis=2)
    with pytest.raises(InvalidArgument, match="axes"):
        xp.argmax(array, axis=-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_mean_and_variance(xp, axis):
    x = _floats((50, 70)) + np.float32(3)
    array = xp.from_host(x)
    np.testing.assert_allclose(host(xp.mean(array, axis=axis)), x.astype("f8").mean(axis=axis), rtol=1e-6)
    np.testing.assert_allclose(host(xp.var(array, axis=axis)), x.astype("f8").var(axis=axis), rtol=1e-5)
