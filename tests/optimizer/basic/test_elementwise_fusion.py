"""Pairs of elementwise operators done by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, f32, node

X = ("x", FLOAT, [2, 3])
Z = ("z", FLOAT, [2, 3])
Y = ("y", FLOAT, [2, 3])


@pytest.mark.parametrize("inputs", [["d", "z"], ["z", "d"]])
def test_a_product_with_a_reciprocal_is_a_quotient(inputs):
    model = build([node("Div", ["one", "x"], ["d"]), node("Mul", inputs, ["y"])], [X, Z], [Y], {"one": f32(1)})
    assert basic_ops(model) == ["Div"]
    assert_equal_at_levels(model)


@pytest.mark.parametrize(("dividend", "factors"), [(f32(2), ["d", "z"]), (f32(1), ["d", "d"]), (f32([[[1]]]), ["d", "z"])])
def test_other_quotients_stay(dividend, factors):
    shape = [1, 2, 3] if dividend.ndim == 3 else [2, 3]
    model = build([node("Div", ["c", "x"], ["d"]), node("Mul", factors, ["y"])], [X, Z], [("y", FLOAT, shape)], {"c": dividend})
    assert basic_ops(model) == ["Div", "Mul"]
    assert_equal_at_levels(model)


def test_integer_quotients_stay():
    values = [(name, TensorProto.INT32, [3]) for name in "xzy"]
    model = build(
        [node("Div", ["one", "x"], ["d"]), node("Mul", ["d", "z"], ["y"])], values[:2], values[2:], {"one": np.array(1, np.int32)}
    )
    assert basic_ops(model) == ["Div", "Mul"]
    assert_equal_at_levels(model, {"x": np.array([1, 2, 3], np.int32), "z": np.array([4, 5, 6], np.int32)})


@pytest.mark.parametrize("negations", [1, 2])
def test_negated_conditions_exchange_values(negations):
    names = ["c", *(f"n{index}" for index in range(negations))]
    model = build(
        [
            *(node("Not", [before], [after]) for before, after in itertools.pairwise(names)),
            node("Where", [names[-1], "x", "z"], ["y"]),
        ],
        [("c", TensorProto.BOOL, [2, 1]), X, Z],
        [Y],
    )
    assert basic_ops(model) == ["Where"]
    feeds = {"c": np.array([[True], [False]]), "x": f32(np.ones((2, 3))), "z": f32(np.zeros((2, 3)))}
    assert_equal_at_levels(model, feeds)


@pytest.mark.parametrize(("lower", "left"), [(0, ["Clip"]), (1, ["Clip"]), (-1, ["Relu", "Clip"])])
def test_a_clip_from_zero_needs_no_relu(lower, left):
    model = build([node("Relu", ["x"], ["r"]), node("Clip", ["r", "l"], ["y"])], [X], [Y], {"l": f32(lower)})
    assert basic_ops(model) == left
    assert_equal_at_levels(model)


def test_a_clip_without_lower_bound_needs_its_relu():
    model = build([node("Relu", ["x"], ["r"]), node("Clip", ["r", "", "u"], ["y"])], [X], [Y], {"u": f32(1)})
    assert basic_ops(model) == ["Relu", "Clip"]


def test_shapes_are_taken_before_casts():
    model = build(
        [node("Cast", ["x"], ["c"], to=TensorProto.INT32), node("Shape", ["c"], ["y"])],
        [("x", FLOAT, ["n", 3])],
        [("y", TensorProto.INT64, [2])],
    )
    assert basic_ops(model) == ["Shape"]
    assert_equal_at_levels(model)
