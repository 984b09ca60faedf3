"""The generator family: every form of Constant, shapes, ramps and random numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import ort_sdk
from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from ort_sdk.opset.random_state import new_generator, set_seed
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(10)
FLOAT = TensorElementType.FLOAT


def index(*values):
    return np.array(values, np.int64)


def run(op_type, inputs, opset, **attributes):
    return run_sdk(*make_model(op_type, inputs, opset=opset, attributes=attributes))[0]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2.0]}, np.array([1.5, 2], np.float32)),
        ({"value_int": 3}, np.array(3, np.int64)),
        ({"value_ints": [3, -4]}, np.array([3, -4], np.int64)),
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", ""]}, np.array(["a", ""], object)),
        ({"value": onnx.numpy_helper.from_array(np.eye(2, dtype=np.float16))}, np.eye(2, dtype=np.float16)),
    ],
)
@pytest.mark.parametrize("opset", [12, 13, 21, 25])
def test_constant(attributes, expected, opset):
    assert_same(run("Constant", [], opset, **attributes), expected, 0, 0)


def test_sparse_constant():
    values = onnx.numpy_helper.from_array(np.array([1.5, -2], np.float32))
    flat = onnx.numpy_helper.from_array(index(1, 5))
    pairs = onnx.numpy_helper.from_array(np.array([[0, 1], [1, 2]], np.int64))
    expected = np.array([[0, 1.5, 0], [0, 0, -2]], np.float32)
    for positions in (flat, pairs):
        sparse = helper.make_sparse_tensor(values, positions, [2, 3])
        assert_same(run("Constant", [], 11, sparse_value=sparse), expected, 0, 0)


def test_constant_over_the_array_api_standard():
    (actual,) = run_kernel("Constant", [], [FLOAT], opset=13, attributes={"value": np.eye(2, dtype=np.float32)})
    assert_same(actual, np.eye(2, dtype=np.float32), 0, 0)


@pytest.mark.parametrize("attributes", [{}, {"value_int": 1, "value_float": 1.0}])
def test_constant_wants_one_value(attributes):
    with pytest.raises(InvalidGraph, match="exactly one of"):
        run_kernel("Constant", [], [FLOAT], opset=13, attributes=attributes)


@pytest.mark.parametrize(
    "value",
    [
        np.array([2.5], np.float32),
        np.array([7], np.uint8),
        np.array([True]),
        np.array([3], ml_dtypes.int4),
        np.array([0.5], ml_dtypes.bfloat16),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_constant_of_shape(value, shape):
    tensor = helper.make_tensor("value", int(TensorElementType.from_numpy_dtype(value.dtype)), [1], value)
    actual = run("ConstantOfShape", [index(*shape)], 21, value=tensor)
    np.testing.assert_array_equal(actual, np.full(shape, value[0], value.dtype), strict=True)


def test_constant_of_shape_defaults():
    compare("ConstantOfShape", [index(2, 3)], opset=9)
    (strict,) = run_kernel("ConstantOfShape", [index(2, 3)], [FLOAT], opset=9)
    assert_same(strict, np.zeros((2, 3), np.float32), 0, 0)


@pytest.mark.parametrize("bounds", [(1, 11, 3), (11, 1, -3), (1, 5, -3), (0, 10, 5), (-7, 7, 2)])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
def test_range(dtype, bounds):
    inputs = [np.array(bound, dtype) for bound in bounds]
    compare("Range", inputs, opset=11)
    (strict,) = run_kernel("Range", inputs, [TensorElementType.from_numpy_dtype(dtype)], opset=27)
    assert_same(strict, np.arange(*bounds).astype(dtype), 0, 0)


def test_range_of_fractions():
    compare("Range", [np.array(bound, np.float32) for bound in (0.1, 1.0, 0.1)], opset=11)
    with pytest.raises(InvalidArgument, match="delta"):
        run("Range", [np.array(bound, np.float32) for bound in (0, 1, 0)], 11)


def test_range_of_float16_does_not_stall():
    actual = run("Range", [np.array(bound, np.float16) for bound in (2040, 2056, 1)], 27)
    np.testing.assert_array_equal(actual, np.arange(2040, 2056).astype(np.float16), strict=True)


@pytest.mark.parametrize("diagonal", [0, 1, -2, 9])
@pytest.mark.parametrize("dtype", [TensorElementType.FLOAT, TensorElementType.INT64, TensorElementType.DOUBLE])
def test_eye_like(dtype, diagonal):
    attributes = {"k": diagonal, "dtype": int(dtype)}
    (expected,) = compare("EyeLike", [np.zeros((3, 4), np.int32)], opset=9, attributes=attributes)
    (strict,) = run_kernel("EyeLike", [np.zeros((3, 4), np.int32)], [dtype], opset=22, attributes=attributes)
    assert_same(strict, expected, 0, 0)


def test_eye_like_wants_a_matrix():
    with pytest.raises(InvalidArgument, match="must be a matrix"):
        run("EyeLike", [np.zeros(3, np.float32)], 9)


NORMAL = {"mean": 2.0, "scale": 0.5}
UNIFORM = {"low": -1.0, "high": 3.0}


@pytest.mark.parametrize("dtype", [TensorElementType.FLOAT, TensorElementType.DOUBLE, TensorElementType.FLOAT16])
@pytest.mark.parametrize("opset", [1, 22])
@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize(("name", "attributes"), [("RandomNormal", NORMAL), ("RandomUniform", UNIFORM)])
def test_distribution(name, attributes, like, opset, dtype):
    inputs = [np.zeros((100, 50), np.int32)] if like else []
    attributes = attributes | {"dtype": int(dtype), "seed": 7.0} | ({} if like else {"shape": [100, 50]})
    x = run(name + "Like" * like, inputs, opset, **attributes)
    assert (x.shape, x.dtype) == ((100, 50), dtype.numpy_dtype)
    x = x.astype(np.float64)
    if name == "RandomNormal":
        assert abs(x.mean() - 2) < 0.05
        assert abs(x.std() - 0.5) < 0.05
    else:
        assert -1 <= x.min() < -0.99
        assert 2.99 < x.max() <= 3
        assert abs(x.mean() - 1) < 0.1


def test_like_takes_the_input_type_by_default():
    assert run("RandomUniformLike", [np.zeros(3, np.float64)], 22).dtype == np.float64


def session(seed):
    attributes = {"shape": [8]} | ({} if seed is None else {"seed": seed})
    model, _ = make_model("RandomNormal", [], opset=22, attributes=attributes)
    return ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_seeded_nodes_repeat_their_numbers_in_every_session():
    first, second, other = session(1.0), session(1.0), session(1.5)
    runs = [first.run(None, {})[0] for _ in range(3)]
    for numbers in runs:
        np.testing.assert_array_equal(second.run(None, {})[0], numbers)
    assert not np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], other.run(None, {})[0])


def test_unseeded_nodes_differ_unless_the_process_is_seeded():
    assert not np.array_equal(session(None).run(None, {})[0], session(None).run(None, {})[0])
    set_seed(5)
    first = [new_generator(None).random(), new_generator(None).random()]
    set_seed(5)
    assert [new_generator(None).random(), new_generator(None).random()] == first
    assert first[0] != first[1]


@pytest.mark.parametrize("opset", [15, 22])
@pytest.mark.parametrize("dtype", [TensorElementType.FLOAT, TensorElementType.BOOL, TensorElementType.INT32])
def test_bernoulli(opset, dtype):
    probability = np.array([0, 0.25, 1], np.float32).repeat(4000).reshape(3, 4000)
    x = run("Bernoulli", [probability], opset, dtype=int(dtype), seed=3.0)
    assert (x.shape, x.dtype) == (probability.shape, dtype.numpy_dtype)
    means = x.astype(np.float64).mean(axis=1)
    assert means[0] == 0
    assert abs(means[1] - 0.25) < 0.03
    assert means[2] == 1


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("dtype", [TensorElementType.INT32, TensorElementType.INT64])
def test_multinomial(opset, dtype):
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities * 9).astype(np.float32)
    attributes = {"sample_size": 20000, "dtype": int(dtype), "seed": 2.0}
    x = run("Multinomial", [logits], opset, **attributes)
    assert (x.shape, x.dtype) == ((2, 20000), dtype.numpy_dtype)
    frequencies = np.stack([np.bincount(row, minlength=3) for row in x]) / 20000
    np.testing.assert_allclose(frequencies, probabilities, atol=0.02)
    assert frequencies[1, 1] == 0
    (strict,) = run_kernel("Multinomial", [logits], [dtype], opset=opset, attributes=attributes)
    np.testing.assert_array_equal(strict, x)


def test_multinomial_wants_rows_of_classes():
    with pytest.raises(InvalidArgument, match="batch, classes"):
        run("Multinomial", [np.zeros(3, np.float32)], 7)
    with pytest.raises(InvalidGraph, match="sample_size"):
        run_kernel("Multinomial", [np.zeros((1, 3))], [TensorElementType.INT32], opset=7, attributes={"sample_size": 0})


@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_numbers_over_the_array_api_standard(op_type):
    x = np.full((4, 5), 0.5, np.float32)
    (strict,) = run_kernel(op_type, [x], [FLOAT], opset=22, attributes={"seed": 4.0})
    assert_same(strict, run(op_type, [x], 22, seed=4.0), 0, 0)
