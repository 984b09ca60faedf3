"""LogSoftmax, ReduceLogSumExp, LpNormalization, CumSum and Trilu by tasks: as the shared set and float64 compute them."""

import numpy as np
import pytest

RNG = np.random.default_rng(0)
SHAPES = [(1, 5), (3, 700), (2, 3, 400), (600, 2), (1, 1), (40, 16, 3)]


def _floats(shape, scale=3.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("version", [1, 11, 13])
@pytest.mark.parametrize("scale", [3.0, 90.0])
def test_log_softmax(check, shape, axis, version, scale):
    if version < 13 and axis < 0:
        axis = len(shape) - 1
    check("LogSoftmax", _floats(shape, scale), version=version, axis=axis, tolerance=1e-6)


def test_log_softmax_of_extremes(run_both):
    x = _floats((8, 500))
    x[0, 3], x[1, 3], x[2], x[3], x[4, ::2] = np.inf, np.nan, -np.inf, 7.0, -np.inf
    _, (found,) = run_both("LogSoftmax", x, axis=-1)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
        expected = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(found[3:], expected[3:], rtol=1e-6, atol=1e-6)
    assert np.isnan(found[:3]).any(axis=1).all()


@pytest.mark.parametrize("width", [1, 2, 17, 1000, 30000])
def test_log_softmax_is_as_exact_as_its_type(run_both, width):
    x = _floats((20, width), 0.01)
    _, (found,) = run_both("LogSoftmax", x, axis=-1)
    wide = x.astype(np.float64)
    expected = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axes", [None, [0], [-1], [1, 0], [-1, -2]])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("version", [13, 18])
def test_reduce_log_sum_exp(check, shape, axes, keepdims, version):
    options = {"version": version, "keepdims": keepdims, "tolerance": 1e-6}
    if version < 18:
        check("ReduceLogSumExp", _floats(shape, 30.0), **options, **({} if axes is None else {"axes": axes}))
    else:
        check(
            "ReduceLogSumExp",
            _floats(shape, 30.0),
            None if axes is None else np.array(axes),
            constants=(1,) * bool(axes),
            **options,
        )


def test_reduce_log_sum_exp_of_extremes(run_both):
    x = _floats((8, 500))
    x[0, 3], x[1, 3], x[2], x[3], x[4, ::2], x[5] = np.inf, np.nan, -np.inf, 88.0, -np.inf, -200.0
    x[6, 2:5] = np.inf, -np.inf, np.nan
    x[7, 2:4] = np.inf, -np.inf
    _, (found,) = run_both("ReduceLogSumExp", x, version=13, axes=[1], keepdims=0)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(check, shape, axis, p):
    x = _floats(shape)
    x[0] = 0
    check("LpNormalization", x, axis=axis, p=p, tolerance=1e-6)


@pytest.mark.parametrize("shape", [(700,), *SHAPES])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.float64])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_cum_sum(run_both, shape, axis, exclusive, reverse, dtype, constants):
    if axis == len(shape):
        return
    x = RNG.integers(-9, 9, shape).astype(dtype)
    expected, found = run_both("CumSum", x, np.array(axis), exclusive=exclusive, reverse=reverse, constants=constants)
    if found is not None:
        np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16, np.float64, np.uint8])
@pytest.mark.parametrize("shape", [(30, 30), (2, 3, 20, 40), (40, 9), (1, 1)])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, 0, 1, -3, 100])
def test_trilu(check, dtype, shape, upper, diagonal):
    x = RNG.integers(-30, 30, shape).astype(dtype)
    if x.dtype.kind == "f":
        x.reshape(-1)[::3] = -np.inf
    given = () if diagonal is None else (np.array(diagonal),)
    check("Trilu", x, *given, upper=upper, constants=() if diagonal is None else (1,))


def test_trilu_of_views(check):
    check("Trilu", _floats((40, 30)).T, upper=0)
    check("Trilu", _floats((5, 30, 60))[:, :, ::2], upper=1)
