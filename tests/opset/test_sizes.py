"""Sizes that feeds and attributes decide: what cannot be is refused in every run, before a library is asked for it."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import InvalidArgument, OrtSdkError
from ort_sdk.opset import as_namespace
from ort_sdk.opset.sizes import repeated, require_size, tiled
from ort_sdk.opset.tensor.resize_axis import AxisPlan, nearest_sources, source_coordinates
from tests.opset.one_node import make_model

MICROSOFT = "com.microsoft"
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = X.reshape(1, 2, 3, 4)


def i64(*values):
    return np.array(values, np.int64)


def test_the_limit_is_what_can_be_addressed():
    assert require_size("here", [0, sys.maxsize], 1) == (0, sys.maxsize)
    assert require_size("here", [sys.maxsize // 4], 4) == (sys.maxsize // 4,)
    for shape, width in (([sys.maxsize], 2), ([2**62, 0, 2], 1), ([2**32, 2**32], 1), ([-1], 1), ([0, -1], 4)):
        with pytest.raises(InvalidArgument, match=r"^\[.*here: a tensor of shape"):
            require_size("here", shape, width)


def test_repetition_that_would_overflow_is_refused():
    ones = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(repeated(ones, 2, axis=1), ones.repeat(2, axis=1))
    np.testing.assert_array_equal(repeated(np.arange(3), i64(2, 0, 1)), [0, 0, 2])
    np.testing.assert_array_equal(tiled(ones, (2, 3)), np.ones((4, 9), np.float32))
    assert tiled(ones, (2**58, 0)).shape == (2**59, 0)
    for refused in (
        lambda: repeated(ones, 2**62, axis=1),
        lambda: repeated(np.arange(3), i64(2**63 - 1, 2**63 - 1, 18)),
        lambda: repeated(np.arange(2), i64(-1, 3)),
        lambda: tiled(ones, (2**62, 2**62)),
        lambda: as_namespace(np).tile(ones, (2**63 // 3, 1)),
        lambda: as_namespace(np).repeat(ones, 2**61, axis=0),
    ):
        with pytest.raises(InvalidArgument):
            refused()


FAR = 2**62
CASES = [
    *[("Tile", [X, i64(2, count, 3)], {}) for count in (FAR, 2**61, 2**63 // 3, -1)],
    ("Tile", [X, i64(FAR, FAR, 0)], {}),
    *[("Pad", [X, i64(0, 0, FAR, 0, 0, FAR)], {"mode": mode}) for mode in ("constant", "reflect", "edge", "wrap")],
    *[("Pad", [X, i64(0, 0, 0, 0, 0, FAR * 2 - 1)], {"mode": mode}) for mode in ("constant", "reflect", "edge", "wrap")],
    ("Expand", [X[:1], i64(FAR, 3, 4)], {}),
    ("ConstantOfShape", [i64(FAR, 2)], {}),
    ("ConstantOfShape", [i64(-1, 2)], {}),
    ("CenterCropPad", [X, i64(FAR, FAR, 4)], {}),
    ("CenterCropPad", [X, i64(-2, 3, 4)], {}),
    ("Range", [np.array(0, np.int64), np.array(2**63 - 1, np.int64), np.array(1, np.int64)], {}),
    ("Range", [np.array(-(2**63), np.int64), np.array(2**63 - 1, np.int64), np.array(1, np.int64)], {}),
    ("Range", [np.array(0, np.float32), np.array(np.inf, np.float32), np.array(1, np.float32)], {}),
    ("Range", [np.array(np.nan, np.float32), np.array(1, np.float32), np.array(1, np.float32)], {}),
    ("OneHot", [i64(1, 2), np.array(FAR, np.int64), X[0, 0, :2]], {}),
    ("Resize", [IMAGE, None, None, i64(1, 2, FAR, FAR)], {}),
    ("Resize", [IMAGE, None, None, i64(1, 2, -3, 4)], {}),
    ("Resize", [IMAGE, None, None, i64(1, 2, FAR, FAR)], {"mode": "linear"}),
    *[("Resize", [IMAGE, None, np.array([1, 1, scale, 1], np.float32)], {}) for scale in (3e38, np.inf, np.nan, -1)],
    ("DFT", [X.reshape(1, 24, 1), np.array(FAR, np.int64)], {}),
    ("HannWindow", [np.array(FAR, np.int64)], {}),
    (
        "MelWeightMatrix",
        [
            np.array(FAR, np.int64),
            np.array(FAR, np.int64),
            i64(8000).reshape(()),
            *(np.array(hertz, np.float32) for hertz in (0, 4000)),
        ],
        {},
    ),
    ("AffineGrid", [np.zeros((1, 2, 3), np.float32), i64(1, 1, FAR, FAR)], {}),
    ("Col2Im", [X[:1], i64(FAR, FAR), i64(1, 3)], {}),
    ("Col2Im", [X[:1], i64(2, 2), i64(0, 3)], {}),
    ("Col2Im", [X[:1], i64(2, 2), i64(1, 3)], {"strides": [1]}),
    ("MaxUnpool", [IMAGE, np.zeros(IMAGE.shape, np.int64), i64(1, 2, FAR, FAR)], {"kernel_shape": [2, 2]}),
    ("MaxUnpool", [IMAGE, np.zeros(IMAGE.shape, np.int64)], {"kernel_shape": [2, 2], "strides": [2**31 - 1, 2**31 - 1]}),
    ("RoiAlign", [IMAGE, np.array([[0, 0, 3e38, 3e38]], np.float32), i64(0)], {"output_height": 2**31 - 1}),
    ("RoiAlign", [IMAGE, np.array([[0, 0, np.nan, 1]], np.float32), i64(0)], {}),
    ("Conv", [IMAGE, np.ones((1, 2, 1, 1), np.float32)], {"pads": [2**31 - 1] * 4}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [2**31 - 1] * 4}),
    ("ConvTranspose", [IMAGE, np.ones((2, 1, 1, 1), np.float32)], {"strides": [2**31 - 1] * 2}),
    ("ConvTranspose", [IMAGE, np.ones((2, 1, 1, 1), np.float32)], {"pads": [9] * 4}),
]


@pytest.mark.parametrize("are_constant", [False, True])
@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_no_run_makes_what_cannot_be(op_type, inputs, attributes, are_constant):
    constants = tuple(range(1, len(inputs))) if are_constant else ()
    model, feeds = make_model(op_type, inputs, opset=20, attributes=attributes, constants=constants)
    try:
        session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except OrtSdkError:
        return
    for _ in range(4):
        with pytest.raises(InvalidArgument):
            session.run(None, feeds)


POSITIONS = {
    "half_pixel": lambda i, n, o: (i + Fraction(1, 2)) * n / o - Fraction(1, 2),
    "pytorch_half_pixel": lambda i, n, o: (i + Fraction(1, 2)) * n / o - Fraction(1, 2) if o > 1 else Fraction(0),
    "asymmetric": lambda i, n, o: Fraction(i * n, o),
    "tf_half_pixel_for_nn": lambda i, n, o: (i + Fraction(1, 2)) * n / o,
    "align_corners": lambda i, n, o: Fraction(i * (n - 1), o - 1) if o > 1 else Fraction(0),
}
ROUNDED = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda c: math.ceil(c - Fraction(1, 2)),
    "round_prefer_ceil": lambda c: math.floor(c + Fraction(1, 2)),
}


@pytest.mark.parametrize("nearest_mode", ROUNDED)
@pytest.mark.parametrize("mode", POSITIONS)
def test_nearest_positions_of_given_sizes_are_exact(mode, nearest_mode):
    for size in range(1, 28):
        for output_size in range(1, 41):
            plan = AxisPlan(0, size, output_size, output_size / size, float(output_size), ratio=(output_size, size))
            found = nearest_sources(plan, source_coordinates(plan, mode), nearest_mode, mode)
            positions = (ROUNDED[nearest_mode](POSITIONS[mode](i, size, output_size)) for i in range(output_size))
            assert found.tolist() == [min(max(position, 0), size - 1) for position in positions], (size, output_size)


@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3), (2, 1, 1, 1, 1), (1, 1)])
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_bound_of_clip_is_a_scalar(shape, place, is_constant):
    inputs = [X.reshape(2, 3, 4, 1), None, None][: place + 1]
    inputs[place] = np.full(shape, 1, np.float32)
    model, feeds = make_model("Clip", inputs, opset=18, constants=(place,) if is_constant else ())
    with pytest.raises(InvalidArgument, match="it must be a scalar"):  # noqa: PT012 - either may refuse it
        session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        session.run(None, feeds)


def test_quantized_values_are_rounded_to_the_precision_in_every_run():
    x = np.array([100.49, 101.49, 3.2], np.float32)
    for constants in ((), (1,)):
        attributes = {"output_dtype": 3, "precision": 10}
        model, feeds = make_model(
            "QuantizeLinear", [x, np.array(1, np.float32)], opset=23, attributes=attributes, constants=constants
        )
        session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for _ in range(4):
            assert session.run(None, feeds)[0].tolist() == np.rint(x.astype(np.float16)).tolist() == [100, 102, 3]


@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 4), (3, 1), (4,)])
def test_scales_of_a_normalization_broadcast_in_every_run(op_type, shape):
    inputs = [X + 1, 1 + np.arange(math.prod(shape), dtype=np.float32).reshape(shape)]
    wide = inputs[0].astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True) if op_type == "LayerNormalization" else wide
    expected = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * inputs[1]
    model, feeds = make_model(op_type, inputs, opset=23)
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)
