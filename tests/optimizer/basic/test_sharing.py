"""Equal nodes become one; unread nodes, outputs and constants go."""

from __future__ import annotations

import numpy as np

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_graph, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, f32, node, saved_graph

X = ("x", FLOAT, [2, 3])
Y = ("y", FLOAT, [2, 3])


def test_equal_nodes_become_one():
    model = build(
        [
            *(node("Softmax", ["x"], [name], axis=1) for name in "ab"),
            *(node("Exp", [name], [f"e{name}"]) for name in "ab"),
            node("Add", ["ea", "eb"], ["y"]),
        ],
        [X],
        [Y],
    )
    assert basic_ops(model) == ["Softmax", "Exp", "Add"]
    assert_equal_at_levels(model)


def test_small_constants_are_compared_by_content():
    model = build(
        [node("Pow", ["x", "c"], ["a"]), node("Pow", ["x", "d"], ["b"]), node("Add", ["a", "b"], ["y"])],
        [X],
        [Y],
        {"c": f32(2), "d": f32(2)},
    )
    assert basic_ops(model) == ["Pow", "Add"]
    assert_equal_at_levels(model)


def test_other_attributes_random_numbers_and_outputs_stay():
    model = build(
        [
            node("Softmax", ["x"], ["a"], axis=0),
            node("Softmax", ["x"], ["b"], axis=1),
            *(node("RandomUniformLike", ["x"], [name]) for name in "cd"),
            *(node("Exp", ["x"], [name]) for name in ("e", "f")),
            node("Sum", ["a", "b", "c", "d"], ["y"]),
        ],
        [X],
        [Y, ("e", FLOAT, [2, 3]), ("f", FLOAT, [2, 3])],
    )
    assert sorted(basic_ops(model)) == ["Exp", "Exp", "RandomUniformLike", "RandomUniformLike", "Softmax", "Softmax", "Sum"]


def test_unread_nodes_are_removed():
    model = build(
        [
            node("Exp", ["x"], ["dead"]),
            node("Add", ["dead", "c"], ["deader"]),
            node("LayerNormalization", ["x", "s"], ["y", "mean", "deviation"]),
        ],
        [X],
        [Y],
        {"c": f32(1), "s": f32([1, 2, 3])},
    )
    graph = basic_graph(model)
    assert [(found.op_type, found.outputs) for found in graph.nodes] == [("LayerNormalization", ["y"])]
    assert list(graph.initializers) == ["s"]
    assert_equal_at_levels(model)


def test_outputs_that_are_not_optional_keep_their_names():
    model = build([node("TopK", ["x", "k"], ["y", "i"])], [X], [("y", FLOAT, [2, 2])], {"k": np.array([2])})
    assert basic_graph(model).nodes[0].outputs == ["y", "i"]


def test_a_constant_that_a_feed_may_replace_is_none():
    model = build([node("Add", ["x", "c"], ["y"])], [X, ("c", FLOAT, [1])], [Y], {"c": f32([0])})
    assert basic_ops(model) == ["Add"]
    assert_equal_at_levels(model, {"x": f32(np.ones((2, 3))), "c": f32([3])})


def test_an_unread_constant_that_is_an_input_stays(tmp_path):
    model = build([node("Exp", ["x"], ["y"])], [X, ("c", FLOAT, [1])], [Y], {"c": f32([0])})
    saved = saved_graph(model, 1, tmp_path)
    assert "c" in [tensor.name for tensor in saved.initializer]
    assert "c" in [value.name for value in saved.input]
    assert [node.op_type for node in saved.node] == ["Exp"]


def test_unread_indices_of_a_pool_are_not_asked_for():
    model = build([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2])], [("x", FLOAT, [1, 1, 4])], [("y", FLOAT, [1, 1, 3])])
    assert basic_graph(model).nodes[0].outputs == ["y"]
    assert_equal_at_levels(model)
