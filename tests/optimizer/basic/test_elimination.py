"""Nodes that change nothing go; nodes that look like them stay."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_graph, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, f32, node

X = ("x", FLOAT, [2, 3])


def chain(*nodes, constants=None, shape=(2, 3), out=None, opset=17, element_type=FLOAT):
    """Relu before and Neg after the nodes, which go from ``a`` to ``b``."""
    return build(
        [node("Relu", ["x"], ["a"]), *nodes, node("Neg", ["b"], ["y"])],
        [("x", FLOAT, list(shape))],
        [("y", element_type, list(out or shape))],
        constants,
        opset,
    )


IDLE = {
    "identity": ([node("Identity", ["a"], ["b"])], None),
    "concat of one": ([node("Concat", ["a"], ["b"], axis=1)], None),
    "least of one": ([node("Min", ["a"], ["b"])], None),
    "sum of one": ([node("Sum", ["a"], ["b"])], None),
    "dropout": ([node("Dropout", ["a"], ["b"])], None),
    "dropout with mask": ([node("Dropout", ["a"], ["b", "mask"])], None),
    "cast to the same type": ([node("Cast", ["a"], ["b"], to=FLOAT)], None),
    "lossless detour": ([node("Cast", ["a"], ["w"], to=TensorProto.DOUBLE), node("Cast", ["w"], ["b"], to=FLOAT)], None),
    "plus zero": ([node("Add", ["a", "c"], ["b"])], {"c": f32(0)}),
    "zero plus": ([node("Add", ["c", "a"], ["b"])], {"c": f32([[0]])}),
    "minus zero": ([node("Sub", ["a", "c"], ["b"])], {"c": f32([0])}),
    "times one": ([node("Mul", ["a", "c"], ["b"])], {"c": f32(1)}),
    "divided by one": ([node("Div", ["a", "c"], ["b"])], {"c": f32(1)}),
    "whole slice": ([node("Slice", ["a", "s", "e"], ["b"])], {"s": np.array([0, 0]), "e": np.array([2, 2**63 - 1])}),
    "negative axis": (
        [node("Slice", ["a", "s", "e", "i"], ["b"])],
        {"s": np.array([0]), "e": np.array([3]), "i": np.array([-1])},
    ),
    "expand to itself": ([node("Expand", ["a", "s"], ["b"])], {"s": np.array([2, 3])}),
    "expand by ones": ([node("Expand", ["a", "s"], ["b"])], {"s": np.array([1, 1])}),
    "reshape to itself": ([node("Reshape", ["a", "s"], ["b"])], {"s": np.array([2, -1])}),
    "two transposes": ([node("Transpose", ["a"], ["t"], perm=[1, 0]), node("Transpose", ["t"], ["b"])], None),
    "there and back": ([node("Unsqueeze", ["a", "i"], ["u"]), node("Squeeze", ["u", "i"], ["b"])], {"i": np.array([1])}),
    "flattened and restored": (
        [node("Flatten", ["a"], ["f"], axis=0), node("Reshape", ["f", "s"], ["b"])],
        {"s": np.array([2, 3])},
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_what_changes_nothing_goes(case):
    nodes, constants = IDLE[case]
    model = chain(*nodes, constants=constants)
    assert basic_ops(model) == ["Relu", "Neg"]
    assert_equal_at_levels(model)


BUSY = {
    "cast that rounds": (
        [node("Cast", ["a"], ["w"], to=TensorProto.FLOAT16), node("Cast", ["w"], ["b"], to=FLOAT)],
        None,
        ["Cast", "Cast"],
    ),
    "integer on the way": (
        [node("Cast", ["a"], ["w"], to=TensorProto.INT32), node("Cast", ["w"], ["b"], to=FLOAT)],
        None,
        ["Cast", "Cast"],
    ),
    "plus one": ([node("Add", ["a", "c"], ["b"])], {"c": f32(1)}, ["Add"]),
    "zero minus": ([node("Sub", ["c", "a"], ["b"])], {"c": f32(0)}, ["Sub"]),
    "one divided": ([node("Div", ["c", "a"], ["b"])], {"c": f32(1)}, ["Div"]),
    "part": ([node("Slice", ["a", "s", "e"], ["p"]), node("Concat", ["p", "p"], ["b"], axis=0)],
             {"s": np.array([1]), "e": np.array([2])}, ["Slice", "Concat"]),
    "backwards": (
        [node("Slice", ["a", "s", "e", "i", "n"], ["b"])],
        {"s": np.array([-1]), "e": np.array([-(2**31)]), "i": np.array([0]), "n": np.array([-1])},
        ["Slice"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUSY)
def test_what_changes_something_stays(case):
    nodes, constants, left = BUSY[case]
    model = chain(*nodes, constants=constants)
    assert basic_ops(model) == ["Relu", *left, "Neg"]
    assert_equal_at_levels(model, {"x": np.linspace(0.1, 2, 6, dtype=np.float32).reshape(2, 3)})


@pytest.mark.parametrize(("start", "end"), [(0, 4), (2, 2**31 - 1)])
def test_several_parts_of_a_value_joined_to_itself_are_not_one_of_them(start, end):
    """Names are one object where a pass put one value in all places."""
    model = build(
        [
            *(node("Relu", ["x"], ["r"]), node("Identity", ["r"], ["a"]), node("Concat", ["a", "a", "a"], ["c"], axis=0)),
            *(node("Slice", ["c", "start", "end"], ["b"]), node("Neg", ["b"], ["y"])),
        ],
        [X],
        [("y", FLOAT, [4, 3])],
        {"start": np.array([start]), "end": np.array([end])},
    )
    assert basic_ops(model) == ["Relu", "Concat", "Slice", "Neg"]
    assert_equal_at_levels(model)


@pytest.mark.parametrize("squeezed", [["a"], ["a", "last"]], ids=["all", "last"])
def test_other_axes_of_unknown_ranks_are_not_given_back(squeezed):
    """Axes counted from the end are not known where the rank is not, nor are those that Squeeze finds itself."""
    model = build(
        [
            *(node("Relu", ["x"], ["a"]), node("Squeeze", squeezed, ["s"])),
            *(node("Unsqueeze", ["s", "before"], ["b"]), node("Neg", ["b"], ["y"])),
        ],
        [("x", FLOAT, None)],
        [("y", FLOAT, None)],
        {"last": np.array([-1]), "before": np.array([-2])},
    )
    assert basic_ops(model) == ["Relu", "Squeeze", "Unsqueeze", "Neg"]
    assert_equal_at_levels(model, {"x": np.linspace(-1, 1, 3, dtype=np.float32).reshape(3, 1)})


def test_a_neutral_constant_that_adds_an_axis_stays():
    model = build(
        [node("Relu", ["x"], ["a"]), node("Add", ["a", "c"], ["y"])], [X], [("y", FLOAT, [1, 2, 3])], {"c": f32([[[0]]])}
    )
    assert basic_ops(model) == ["Relu", "Add"]
    assert_equal_at_levels(model)


def test_dropout_in_training_mode_stays():
    model = build([node("Dropout", ["x", "r", "t"], ["y"])], [X], [("y", FLOAT, [2, 3])], {"r": f32(0.5), "t": np.array(True)})
    assert basic_ops(model) == ["Dropout"]


def test_dropout_whose_mask_is_read_stays():
    model = build([node("Dropout", ["x"], ["y", "m"])], [X], [("y", FLOAT, [2, 3]), ("m", TensorProto.BOOL, [2, 3])])
    assert basic_ops(model) == ["Dropout"]
    assert_equal_at_levels(model)


def test_an_integer_detour_over_floats_that_may_overflow_stays():
    model = build(
        [node("Cast", ["x"], ["w"], to=FLOAT), node("Cast", ["w"], ["y"], to=TensorProto.INT8)],
        [("x", TensorProto.UINT8, [3])],
        [("y", TensorProto.INT8, [3])],
    )
    assert basic_ops(model) == ["Cast", "Cast"]


def test_an_integer_detour_is_skipped():
    model = build(
        [node("Cast", ["x"], ["w"], to=TensorProto.INT64), node("Cast", ["w"], ["y"], to=FLOAT)],
        [("x", TensorProto.INT32, [3])],
        [("y", FLOAT, [3])],
    )
    assert basic_ops(model) == ["Cast"]
    assert_equal_at_levels(model)


def test_outputs_keep_their_names():
    """Of the identities that make outputs, those stay that would leave two names to one value."""
    model = build(
        [node("Relu", ["x"], ["a"]), *(node("Identity", ["a"], [name]) for name in "yz"), node("Identity", ["x"], ["w"])],
        [X],
        [(name, FLOAT, [2, 3]) for name in "yzw"],
    )
    graph = basic_graph(model)
    assert [output.name for output in graph.outputs] == ["y", "z", "w"]
    assert [found.op_type for found in graph.nodes] == ["Relu", "Identity", "Identity"]
    assert_equal_at_levels(model)


def test_values_read_by_bodies_are_renamed_there():
    body = helper.make_graph([node("Add", ["b", "b"], ["s"])], "t", [], [helper.make_tensor_value_info("s", FLOAT, [2, 3])])
    other = helper.make_graph([node("Neg", ["b"], ["n"])], "e", [], [helper.make_tensor_value_info("n", FLOAT, [2, 3])])
    model = build(
        [
            node("Relu", ["x"], ["a"]),
            node("Identity", ["a"], ["b"]),
            node("If", ["c"], ["y"], then_branch=body, else_branch=other),
        ],
        [X, ("c", TensorProto.BOOL, [])],
        [("y", FLOAT, [2, 3])],
    )
    graph = basic_graph(model)
    assert [found.op_type for found in graph.nodes] == ["Relu", "If"]
    assert graph.nodes[1].implicit_inputs == ["a"]
    for condition in (True, False):
        assert_equal_at_levels(model, {"x": f32(np.ones((2, 3))), "c": np.array(condition)})


def test_slices_of_a_concat_give_its_inputs():
    """The last slice crosses a border and stays."""
    bounds = {"s0": [0], "e0": [2], "s1": [2], "e1": [2**31 - 1], "s2": [1], "e2": [3], "one": [1]}
    model = build(
        [
            node("Relu", ["x"], ["a"]),
            node("Neg", ["z"], ["b"]),
            node("Concat", ["a", "b"], ["c"], axis=1),
            *(node("Slice", ["c", f"s{i}", f"e{i}", "one"], [f"p{i}"]) for i in range(3)),
            *(node("Exp", [f"p{i}"], [f"y{i}"]) for i in range(3)),
        ],
        [("x", FLOAT, [3, 2]), ("z", FLOAT, [3, 4])],
        [("y0", FLOAT, [3, 2]), ("y1", FLOAT, [3, 4]), ("y2", FLOAT, [3, 2])],
        {name: np.array(value) for name, value in bounds.items()},
    )
    assert basic_ops(model) == ["Relu", "Neg", "Concat", "Slice", "Exp", "Exp", "Exp"]
    assert_equal_at_levels(model)


def test_transposes_in_a_row_join():
    model = build(
        [node("Transpose", ["x"], ["t"], perm=[1, 2, 0]), node("Transpose", ["t"], ["y"], perm=[0, 2, 1])],
        [("x", FLOAT, [2, 3, 4])],
        [("y", FLOAT, [3, 2, 4])],
    )
    (left,) = basic_graph(model).nodes
    assert left.attributes["perm"] == [1, 0, 2]
    assert_equal_at_levels(model)


def test_a_disabled_pass_does_nothing():
    model = chain(node("Identity", ["a"], ["b"]))
    assert basic_ops(model, disabled=["EliminateIdentity"]) == ["Relu", "Identity", "Neg"]
    key = "optimization.disable_specified_optimizers"
    assert basic_ops(model, config={key: "EliminateIdentity"}) == ["Relu", "Identity", "Neg"]


@pytest.mark.parametrize(("target", "left"), [([0, 0, 4], []), ([0, -1, 4], ["Reshape"]), ([-1, 0, 4], ["Reshape"])])
def test_a_reshape_that_copies_open_dimensions_goes(target, left):
    """Of two dimensions that are not known before a run, a -1 may stand for the product of both."""
    model = chain(node("Reshape", ["a", "s"], ["b"]), constants={"s": np.array(target)}, shape=("n", "m", 4), out=(None, None, 4))
    assert basic_ops(model) == ["Relu", *left, "Neg"]
    assert_equal_at_levels(model)


def test_names_of_one_weight_are_one_weight():
    """As exporters write what shares a weight: nodes that compute the same of the same input are one."""
    nodes = [
        node("Identity", ["w"], ["v"]),
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["x", "v"], ["b"]),
        node("Mul", ["a", "b"], ["y"]),
    ]
    weight = np.random.default_rng(3).standard_normal((4, 40)).astype(np.float32)
    model = build(nodes, [("x", FLOAT, [3, 4])], [("y", FLOAT, [3, 40])], {"w": weight})
    assert basic_ops(model) == ["MatMul", "Mul"]
    assert_equal_at_levels(model)
