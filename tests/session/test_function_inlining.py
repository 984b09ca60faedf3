"""Functions of a model are inlined before passes run, so that passes see inside."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.models_for_tests import model_bytes, value
from tests.optimizer.extended.fused_graph import open_session

node = helper.make_node
IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def function(name, inputs, outputs, *nodes, attributes=()):
    return helper.make_function("f", name, inputs, outputs, list(nodes), IMPORTS, list(attributes))


TWICE = function("Twice", ["a"], ["b"], node("Identity", ["a"], ["t"]), node("Add", ["t", "t"], ["b"]))
FOUR_TIMES = function("FourTimes", ["a"], ["b"], node("Twice", ["a"], ["t"], domain="f"), node("Twice", ["t"], ["b"], domain="f"))


def calling(*nodes, functions=(TWICE, FOUR_TIMES), constants=None):
    return model_bytes(
        list(nodes), [value("x", [2, 3])], [value("y", [2, 3])], constants, domains=["f"], functions=list(functions)
    )


def left(model, config=None):
    return [found.op_type for found in open_session(model, 1, config=config)._state.model.graph.nodes]


def assert_same(model):
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    for level in (0, 1, 3):
        np.testing.assert_array_equal(open_session(model, level).run(None, feeds)[0], expected)


def test_calls_and_calls_in_them_are_inlined_and_optimized():
    model = calling(node("FourTimes", ["x"], ["y"], domain="f"))
    assert left(model) == ["Add", "Add"]
    assert_same(model)


def test_calls_of_one_function_do_not_mix_their_values():
    model = calling(*(node("Twice", [source], [target], domain="f") for source, target in ("xa", "ab", "by")))
    assert left(model) == ["Add", "Add", "Add"]
    assert_same(model)


def test_names_inside_do_not_meet_those_around():
    model = calling(node("Relu", ["x"], ["Twice_y/t"]), node("Twice", ["Twice_y/t"], ["y"], domain="f"))
    assert left(model) == ["Relu", "Add"]
    assert_same(model)


def test_constants_given_to_functions_are_folded():
    model = calling(
        node("Twice", ["c"], ["d"], domain="f"), node("Add", ["x", "d"], ["y"]), constants={"c": np.float32([1, 2, 3])}
    )
    assert left(model) == ["Add"]
    assert_same(model)


def test_calls_in_bodies_are_inlined():
    def branch(name, *nodes):
        return helper.make_graph(list(nodes), name, [], [value(name, [2, 3])])

    then = branch("t", node("Twice", ["x"], ["t"], domain="f"))
    other = branch("e", node("FourTimes", ["x"], ["e"], domain="f"))
    model = calling(
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    )
    graph = open_session(model, 1)._state.model.graph
    bodies = graph.nodes[-1].subgraphs
    assert [found.op_type for found in bodies["then_branch"].nodes] == ["Add"]
    assert [found.op_type for found in bodies["else_branch"].nodes] == ["Add", "Add"]
    assert_same(model)


@pytest.mark.parametrize("value", ["0", "1"])
def test_inlining_before_passes_may_be_disabled(value):
    """What partition inlines later is seen by no basic pass."""
    model = calling(node("Twice", ["x"], ["y"], domain="f"))
    config = {"session.disable_aot_function_inlining": value}
    assert left(model, config) == (["Identity", "Add"] if value == "1" else ["Add"])
