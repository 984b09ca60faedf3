"""Elementwise operators of the math family: old broadcasting, types, and odd values, against independent oracles."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType, schema_versions
from ort_sdk.opset import NumpyNamespace
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(5)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]

UNARY = {
    "Abs": (np.abs, -3, 3),
    "Acos": (np.arccos, -1, 1),
    "Acosh": (np.arccosh, 1, 5),
    "Asin": (np.arcsin, -1, 1),
    "Asinh": (np.arcsinh, -3, 3),
    "Atan": (np.arctan, -3, 3),
    "Atanh": (np.arctanh, -0.9, 0.9),
    "Ceil": (np.ceil, -3, 3),
    "Cos": (np.cos, -3, 3),
    "Cosh": (np.cosh, -3, 3),
    "Erf": (np.vectorize(math.erf), -5, 5),
    "Exp": (np.exp, -3, 3),
    "Floor": (np.floor, -3, 3),
    "Log": (np.log, 0.1, 9),
    "Neg": (np.negative, -3, 3),
    "Reciprocal": (np.reciprocal, 0.5, 3),
    "Round": (np.rint, -3, 3),
    "Sign": (np.sign, -3, 3),
    "Sin": (np.sin, -3, 3),
    "Sinh": (np.sinh, -3, 3),
    "Sqrt": (np.sqrt, 0, 9),
    "Tan": (np.tan, -1, 1),
}


def uniform(low, high, shape=(3, 4, 5), dtype=np.float32):
    return RNG.uniform(low, high, shape).astype(dtype)


def integers(low, high, dtype, shape=(3, 4, 5)):
    limits = np.iinfo(dtype)
    return RNG.integers(max(low, limits.min), min(high, limits.max), shape, dtype, endpoint=True)


def run(op_type, inputs, opset, **attributes):
    return run_sdk(*make_model(op_type, inputs, opset=opset, attributes=attributes))[0]


@pytest.mark.parametrize("op_type", UNARY)
def test_unary_at_every_version_and_over_the_standard(op_type):
    formula, low, high = UNARY[op_type]
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-14)):
        x = uniform(low, high, dtype=dtype)
        expected = formula(x.astype(np.float64))
        for version in schema_versions(op_type):
            actual = run(op_type, [x], version)
            assert actual.dtype == dtype
            np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
        element_type = TensorElementType.from_numpy_dtype(dtype)
        (actual,) = run_kernel(op_type, [x], [element_type], opset=schema_versions(op_type)[-1])
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_erf_is_accurate_everywhere():
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-38, 0, 200), [0.0, -0.0, np.inf, -np.inf]])
    xp, exact = NumpyNamespace(), np.vectorize(math.erf)
    single = xp.erf(x.astype(np.float32))
    expected = exact(x.astype(np.float32).astype(np.float64))
    assert np.all(np.abs(single - expected) <= 1.5 * np.spacing(np.abs(expected).astype(np.float32)))
    assert np.all(np.abs(xp.erf(x) - exact(x)) <= 5 * np.spacing(np.abs(exact(x))))
    assert np.isnan(xp.erf(np.array([np.nan], np.float32))).all()
    assert xp.erf(np.array(0.5, np.float32)).shape == ()


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less", "Equal", "And", "Or", "Xor"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), None), ((4, 5), None), ((3, 4), 0), ((4,), 1), ((4,), -2), ((), None), ((1, 1), None)]
)
def test_broadcasting_before_version_7(op_type, shape, axis):
    function = {
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.divide,
        "Pow": np.power,
        "Greater": np.greater,
        "Less": np.less,
        "Equal": np.equal,
        "And": np.logical_and,
        "Or": np.logical_or,
        "Xor": np.logical_xor,
        "Add": np.add,
    }[op_type]
    dtype = np.bool_ if op_type in {"And", "Or", "Xor"} else np.int32 if op_type == "Equal" else np.float32
    a, b = uniform(1, 3).round().astype(dtype), uniform(1, 3, shape).round().astype(dtype)
    trailing = 0 if axis is None else 3 - len(shape) - (axis % 3)
    expected = function(a, b.reshape(b.shape + (1,) * trailing))
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    for version in (version for version in schema_versions(op_type) if version < 7):
        np.testing.assert_allclose(run(op_type, [a, b], version, **attributes), expected, rtol=1e-6)


def test_broadcasting_before_version_7_must_be_asked_for():
    with pytest.raises(InvalidArgument, match="broadcast=1"):
        run("Add", [uniform(0, 1), uniform(0, 1, (5,))], 6)
    with pytest.raises(InvalidArgument, match="does not fit"):
        run("Add", [uniform(0, 1), uniform(0, 1, (4, 5))], 6, broadcast=1, axis=2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic_wraps_and_truncates(dtype):
    limits = np.iinfo(dtype)
    a, b = integers(limits.min + 1, limits.max // 2, dtype), integers(-50, 50, dtype)
    b[b == 0] = 7
    for op_type in ("Add", "Sub", "Mul"):
        exact = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op_type](a.astype(object), b.astype(object))
        wrapped = (exact - int(limits.min)) % (int(limits.max) - int(limits.min) + 1) + int(limits.min)
        np.testing.assert_array_equal(run(op_type, [a, b], 14), wrapped.astype(dtype), strict=True)
    quotient = np.frompyfunc(lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), 2, 1)
    expected = quotient(a.astype(object), b.astype(object)).astype(dtype)
    np.testing.assert_array_equal(run("Div", [a, b], 14), expected, strict=True)
    (strict,) = run_kernel("Div", [a, b], [TensorElementType.from_numpy_dtype(dtype)], opset=14)
    np.testing.assert_array_equal(strict, expected)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_integer_mod(fmod, dtype):
    a, b = integers(-100, 100, dtype), integers(-9, 9, dtype)
    b[b == 0] = 7
    compare("Mod", [a, b], opset=13, attributes={"fmod": fmod})
    (strict,) = run_kernel("Mod", [a, b], [TensorElementType.from_numpy_dtype(dtype)], opset=13, attributes={"fmod": fmod})
    np.testing.assert_array_equal(strict, np.fmod(a, b) if fmod else np.remainder(a, b))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_float_mod(dtype):
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 5.0, -5.0], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    compare("Mod", [a, b], opset=13, attributes={"fmod": 1})
    np.testing.assert_array_equal(run("Mod", [a, b], 28, fmod=0), np.remainder(a.astype(np.float64), b.astype(np.float64)))
    with pytest.raises(InvalidGraph, match="fmod must be 1"):
        run("Mod", [a, b], 13)


@pytest.mark.parametrize("exponent_type", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("base_type", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("opset", [12, 15])
def test_pow_of_mixed_types(opset, base_type, exponent_type):
    x = uniform(1, 5).astype(base_type)
    compare("Pow", [x, uniform(0, 4, (5,)).astype(exponent_type)], opset=opset)


@pytest.mark.parametrize("exponent_type", [np.int8, np.uint64, np.float16, ml_dtypes.bfloat16])
def test_pow_with_other_exponents(exponent_type):
    x = uniform(1, 5)
    actual = run("Pow", [x, np.array([0, 1, 2, 3, 4], exponent_type)], 15)
    np.testing.assert_allclose(actual, x.astype(np.float64) ** np.arange(5), rtol=1e-6)


def test_powers_of_integers_are_exact():
    x = np.array([3, -3, 1, -1, -1, 2, 10], np.int64)
    y = np.array([39, 39, -5, -5, -4, -1, 18], np.int64)
    expected = np.array([3**39, -(3**39), 1, -1, 1, 0, 10**18], np.int64)
    np.testing.assert_array_equal(run("Pow", [x, y], 15), expected)
    (strict,) = run_kernel("Pow", [x, y], [TensorElementType.INT64], opset=15)
    np.testing.assert_array_equal(strict, expected)


@pytest.mark.parametrize("value", [2, 3])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
def test_pow_with_a_constant_exponent(shape, value):
    x = uniform(-3, 3)
    compare("Pow", [x, np.full(shape, value, np.float32)], opset=13, constants=[1])
    assert run("Pow", [x, np.full(shape, value, np.float32)], 13).shape == np.broadcast_shapes(x.shape, shape)


@pytest.mark.parametrize("op_type", ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
def test_comparisons(op_type):
    a, b = uniform(-2, 2).round(), uniform(-2, 2, (5,)).round()
    a[0, 0, 0] = np.nan
    compare(op_type, [a, b], opset=13)
    for dtype in INTEGERS:
        x, y = integers(-5, 5, dtype), integers(-5, 5, dtype, (5,))
        (strict,) = run_kernel(op_type, [x, y], [TensorElementType.BOOL], opset=19 if op_type == "Equal" else 16)
        assert_same(run(op_type, [x, y], 19), strict, 0, 0)


def test_equal_strings():
    a, b = np.array([["a", "é"], ["", "b"]], object), np.array(["a", "b"], object)
    np.testing.assert_array_equal(run("Equal", [a, b], 19), [[True, False], [False, True]])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift_by_any_count(direction, dtype):
    bits = np.iinfo(dtype).bits
    x = integers(np.iinfo(dtype).min, np.iinfo(dtype).max, dtype, (9, 1))
    y = np.array([0, 1, bits - 1, bits, 100] + ([-1, -3] if np.dtype(dtype).kind == "i" else []), dtype)

    def shifted(value, count):
        count = count if 0 <= count < bits else bits
        return value >> count if direction == "RIGHT" else value << count

    exact = np.frompyfunc(shifted, 2, 1)(x.astype(object), y.astype(object))
    expected = (exact & (2**bits - 1)).astype(np.uint64).astype(dtype)
    np.testing.assert_array_equal(run("BitShift", [x, y], 28, direction=direction), expected, strict=True)
    element_type = TensorElementType.from_numpy_dtype(dtype)
    (strict,) = run_kernel("BitShift", [x, y], [element_type], opset=28, attributes={"direction": direction})
    np.testing.assert_array_equal(strict, expected)


def test_bit_shift_direction():
    with pytest.raises(InvalidGraph, match="'LEFT', 'RIGHT'"):
        run_kernel("BitShift", [np.ones(2, np.uint8)] * 2, [TensorElementType.UINT8], opset=11, attributes={"direction": "UP"})


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise(dtype):
    a, b = integers(-100, 100, dtype), integers(-100, 100, dtype, (5,))
    for op_type in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        compare(op_type, [a, b], opset=18)
    compare("BitwiseNot", [a], opset=18)


@pytest.mark.parametrize(("positive", "negative"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf(positive, negative):
    x = np.array([np.inf, -np.inf, np.nan, 0, 3e38], np.float32)
    attributes = {"detect_positive": positive, "detect_negative": negative}
    compare("IsInf", [x], opset=10, attributes=attributes)
    (strict,) = run_kernel("IsInf", [x], [TensorElementType.BOOL], opset=20, attributes=attributes)
    assert strict.tolist() == [bool(positive), bool(negative), False, False, False]


@pytest.mark.parametrize("opset", [9, 13, 20])
def test_is_nan(opset):
    compare("IsNaN", [np.array([np.inf, np.nan, 0], np.float32)], opset=opset)


@pytest.mark.parametrize("opset", [1, 6])
def test_clip_to_attributes(opset):
    x = np.array([-np.inf, -3, 0.5, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(run("Clip", [x], opset, min=-1.0, max=2.0), [-1, -1, 0.5, 2, np.nan])
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(run("Clip", [x], opset), [-largest, -3, 0.5, largest, np.nan])


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 1), (-1, None), (None, None), (2, -2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
def test_clip_to_inputs(dtype, bounds):
    inputs = [uniform(-3, 3).astype(dtype), *(None if bound is None else np.array(bound, dtype) for bound in bounds)]
    compare("Clip", inputs, opset=13)
    (strict,) = run_kernel("Clip", inputs, [TensorElementType.from_numpy_dtype(dtype)], opset=13)
    np.testing.assert_array_equal(strict, run("Clip", inputs, 13))


def test_nothing_to_do_still_gives_a_new_array():
    x = uniform(-1, 1)
    for op_type, inputs in (("Clip", [x]), ("Sum", [x]), ("Max", [x]), ("Mean", [x]), ("Einsum", [x])):
        attributes = {"equation": "ijk->ijk"} if op_type == "Einsum" else {}
        (actual,) = run_kernel(op_type, inputs, [TensorElementType.FLOAT], opset=13, attributes=attributes, library=np)
        np.testing.assert_array_equal(actual, x)
        assert not np.shares_memory(actual, x)


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("opset", [8, 13])
def test_variadic(op_type, opset):
    compare(op_type, [uniform(-1, 1), uniform(-1, 1, (4, 1)), uniform(-1, 1, ())], opset=opset)
    a, b = uniform(-1, 1), uniform(-1, 1)
    expected = {"Max": np.maximum(a, b), "Min": np.minimum(a, b), "Sum": a + b, "Mean": (a + b) / 2}[op_type]
    for old in (1, 6):
        np.testing.assert_array_equal(run(op_type, [a, b], old), expected)
    (strict,) = run_kernel(op_type, [a, b], [TensorElementType.FLOAT], opset=opset)
    np.testing.assert_array_equal(strict, expected)


def test_rounding_of_halves():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, np.nan, np.inf], np.float32)
    compare("Round", [x], opset=11)
