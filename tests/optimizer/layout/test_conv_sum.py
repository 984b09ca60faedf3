"""Convolutions that take in the addition behind them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, open_session

WEIGHT = np.random.default_rng(1).standard_normal((3, 3, 3, 3)).astype(np.float32)
IMAGE = ("x", FLOAT, [1, 3, 8, 8])


def op_types(model):
    return sorted(found.op_type for found in open_session(model, 99)._state.model.graph.nodes)


@pytest.mark.parametrize("order", [("c", "x"), ("x", "c")])
@pytest.mark.parametrize("bias", [[], ["b"]])
def test_sum_becomes_an_input(order, bias):
    nodes = [node("Conv", ["x", "w", *bias], ["c"], pads=[1] * 4), node("Add", order, ["y"])]
    model = build(nodes, [IMAGE], [("y", FLOAT, None)], {"w": WEIGHT, "b": f32([1, 2, 3])})
    assert op_types(model) == ["FusedConv"]
    assert_same_results(model)


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ([node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Add", ["c", "c"], ["y"])], ["Add", "Conv"]),
        ([node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Add", ["c", "one"], ["y"])], ["Add", "Conv"]),
        (
            [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Add", ["c", "x"], ["s"]), node("Mul", ["s", "c"], ["y"])],
            ["Add", "Conv", "Mul"],
        ),
    ],
    ids=["twice", "another shape", "read elsewhere"],
)
def test_other_additions_are_left(nodes, left):
    model = build(nodes, [IMAGE, ("one", FLOAT, [1, 1, 8, 8])], [("y", FLOAT, None)], {"w": WEIGHT})
    assert op_types(model) == left
    assert_same_results(model)
