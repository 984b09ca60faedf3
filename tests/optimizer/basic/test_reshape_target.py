"""Targets of Reshape that are put together from sizes become constants; those that users give stay."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import ort_sdk
from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_graph
from tests.optimizer.extended.fused_graph import FLOAT, build, node, open_session

SIZES = {"zero": np.array(0), "first": np.array([0]), "heads": np.array([2]), "width": np.array([4])}


def split_heads(source, target):
    """x, a (n, 8), split to (n, 2, 4) by a target made of a value's shape."""
    return build(
        [
            node("Relu", ["x"], ["a"]),
            node("Shape", [source], ["shape"]),
            node("Gather", ["shape", "zero"], ["size"], axis=0),
            node("Unsqueeze", ["size", "first"], ["sizes"]),
            node("Concat", ["sizes", "heads", "width"], ["target"], axis=0),
            node("Reshape", ["a", target], ["split"]),
            node("Neg", ["split"], ["y"]),
        ],
        [("x", FLOAT, ["n", 8])],
        [("y", FLOAT, ["n", 2, 4])],
        SIZES,
        17,
    )


@pytest.mark.parametrize("source", ["x", "a"])
def test_a_target_of_sizes_becomes_constant(source):
    model = split_heads(source, "target")
    graph = basic_graph(model)
    assert [left.op_type for left in graph.nodes] == ["Relu", "Reshape", "Neg"]
    (reshape,) = (left for left in graph.nodes if left.op_type == "Reshape")
    np.testing.assert_array_equal(graph.constant(reshape.inputs[1]).numpy(), [0, 2, 4])
    assert_equal_at_levels(model, {"x": np.arange(24, dtype=np.float32).reshape(3, 8)})


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 2, 3)])
def test_sizes_that_are_copied_and_left_may_be_empty(shape):
    sizes = {"first": np.array([0]), "second": np.array([1]), "width": np.array([3])}
    model = build(
        [
            node("Relu", ["x"], ["a"]),
            node("Shape", ["a"], ["shape"]),
            node("Gather", ["shape", "first"], ["rows"]),
            node("Gather", ["shape", "second"], ["columns"]),
            node("Mul", ["columns", "width"], ["length"]),
            node("Concat", ["rows", "length"], ["target"], axis=0),
            node("Reshape", ["a", "target"], ["y"]),
        ],
        [("x", FLOAT, ["n", "m", 3])],
        [("y", FLOAT, [None, None])],
        sizes,
        17,
    )
    assert "Concat" not in [left.op_type for left in basic_graph(model).nodes]
    assert_equal_at_levels(model, {"x": np.ones(shape, np.float32)})


def test_the_pass_can_be_left_out():
    graph = open_session(split_heads("x", "target"), 1, ["ReshapeTargetFusion"])._state.model.graph
    assert "Concat" in [left.op_type for left in graph.nodes]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("ends", [True, False])
def test_a_target_that_a_user_gives_may_be_wrong(level, ends):
    tail = [] if ends else [node("Neg", ["b"], ["y"])]
    model = build(
        [node("Relu", ["x"], ["a"]), node("Reshape", ["a", "s"], ["y" if ends else "b"]), *tail],
        [("x", FLOAT, [2]), ("s", TensorProto.INT64, [1])],
        [("y", FLOAT, [None])],
        None,
        17,
    )
    session = open_session(model, level)
    (given,) = session.run(None, {"x": np.ones(2, np.float32), "s": np.array([2])})
    assert given.shape == (2,)
    with pytest.raises(ort_sdk.capi.onnxruntime_pybind11_state.InvalidArgument, match="Reshape"):
        session.run(None, {"x": np.ones(2, np.float32), "s": np.array([3])})


def test_named_sizes_are_not_visible():
    model = build(
        [
            node("NonZero", ["x"], ["where"]),
            node("Transpose", ["where"], ["transposed"], perm=[1, 0]),
            node("Abs", ["transposed"], ["y"]),
        ],
        [("x", FLOAT, ["n", 8])],
        [("y", TensorProto.INT64, [None, None])],
        None,
        17,
    )
    session = open_session(model, 1)
    assert session.get_outputs()[0].shape == open_session(model, 0).get_outputs()[0].shape
    graph = basic_graph(model)
    names = [graph.node_arg(name).shape for name in ("where", "y")]
    assert names[0][1] is not None
    assert names[0][1] == names[1][0]
