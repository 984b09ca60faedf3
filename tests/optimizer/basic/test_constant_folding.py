"""What depends on constants alone is computed before the first run, and no bigger than it should be."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.graph.derived_tensor import DerivedTensor
from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_graph, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, f32, node

X = ("x", FLOAT, [2, 3])
Y = ("y", FLOAT, [2, 3])
RNG = np.random.default_rng(5)


def test_a_chain_of_constants_becomes_one():
    model = build(
        [
            node("Sqrt", ["c"], ["r"]),
            node("Transpose", ["r"], ["t"]),
            node("MatMul", ["t", "r"], ["m"]),
            node("Add", ["x", "m"], ["y"]),
        ],
        [("x", FLOAT, [3, 3])],
        [("y", FLOAT, [3, 3])],
        {"c": f32([[1, 4, 9]])},
    )
    graph = basic_graph(model)
    assert [found.op_type for found in graph.nodes] == ["Add"]
    assert list(graph.initializers) == ["m"]
    assert_equal_at_levels(model)


def test_an_output_may_be_a_constant():
    model = build(
        [node("Exp", ["c"], ["y"]), node("Neg", ["x"], ["z"])], [X], [Y, ("z", FLOAT, [2, 3])], {"c": f32(np.ones((2, 3)))}
    )
    assert basic_ops(model) == ["Neg"]
    assert_equal_at_levels(model)


def test_big_results_are_computed_when_they_are_read():
    weight = RNG.standard_normal((200, 300)).astype(np.float32)
    model = build(
        [node("Transpose", ["w"], ["t"]), node("Mul", ["t", "h"], ["m"]), node("MatMul", ["x", "m"], ["y"])],
        [("x", FLOAT, [2, 300])],
        [("y", FLOAT, [2, 200])],
        {"w": weight, "h": f32(0.5)},
    )
    graph = basic_graph(model)
    assert [found.op_type for found in graph.nodes] == ["MatMul"]
    derived = graph.initializers["m"]
    assert isinstance(derived, DerivedTensor)
    assert derived.shape == (300, 200)
    assert derived.nbytes == weight.nbytes
    np.testing.assert_array_equal(derived.numpy(), weight.T * np.float32(0.5))
    np.testing.assert_array_equal(derived.packed().view(np.float32), derived.numpy().reshape(-1))
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-5)


def test_derived_constants_of_the_same_bytes_are_known_as_equal(tmp_path):
    model = tmp_path / "m.onnx"
    model.write_bytes(
        build(
            [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "t"], ["y"])],
            [("x", FLOAT, [2, 300])],
            [("y", FLOAT, [2, 200])],
            {"w": RNG.standard_normal((200, 300)).astype(np.float32)},
        )
    )
    first, second = (basic_graph(model).initializers["t"] for _ in range(2))
    assert first.identity is not None
    assert first.identity == second.identity


def test_results_much_bigger_than_what_they_are_made_of_stay():
    shape = np.array([1024, 1024])
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Expand", ["e", "s"], ["w"]), node("Sum", ["x", "c", "w"], ["y"])]
    model = build(nodes, [("x", FLOAT, [1])], [("y", FLOAT, [1024, 1024])], {"s": shape, "e": f32([2])})
    assert basic_ops(model) == ["ConstantOfShape", "Expand", "Sum"]


def test_tables_that_are_computed_of_a_row_and_a_column_are_folded():
    nodes = [node("Mul", ["p", "f"], ["a"]), node("Sin", ["a"], ["s"]), node("Add", ["x", "s"], ["y"])]
    positions, rates = (RNG.standard_normal(shape).astype(np.float32) for shape in ((1024, 1), (512,)))
    model = build(nodes, [("x", FLOAT, [1])], [("y", FLOAT, [1024, 512])], {"p": positions, "f": rates})
    assert basic_ops(model) == ["Add"]
    assert_equal_at_levels(model, rtol=1e-5, atol=1e-5)


def test_tables_over_64_mib_stay():
    nodes = [node("Mul", ["p", "f"], ["a"]), node("Add", ["x", "a"], ["y"])]
    model = build(
        nodes, [("x", FLOAT, [1])], [("y", FLOAT, [4096, 4097])], {"p": f32(np.ones((4096, 1))), "f": f32(np.ones(4097))}
    )
    assert basic_ops(model) == ["Mul", "Add"]


def test_results_over_the_limit_stay():
    model = build([node("Exp", ["c"], ["e"]), node("Add", ["x", "e"], ["y"])], [X], [Y], {"c": f32(np.ones((2, 3)))})
    key = "optimization.constant_folding_max_output_size_in_bytes"
    assert basic_ops(model, config={key: "23"}) == ["Exp", "Add"]
    assert basic_ops(model, config={key: "24"}) == ["Add"]
    assert basic_ops(model, config={key: "0"}) == ["Add"]


def test_random_numbers_are_drawn_in_each_run():
    model = build([node("RandomUniform", [], ["r"], shape=[2, 3]), node("Add", ["x", "r"], ["y"])], [X], [Y])
    assert basic_ops(model) == ["RandomUniform", "Add"]


def test_quantized_weights_stay_quantized():
    model = build(
        [node("DequantizeLinear", ["q", "s"], ["w"]), node("MatMul", ["x", "w"], ["y"])],
        [X],
        [("y", FLOAT, [2, 4])],
        {"q": RNG.integers(-128, 127, (3, 4), dtype=np.int8), "s": f32(0.1)},
    )
    assert basic_ops(model) == ["DequantizeLinear", "MatMul"]
    assert basic_ops(model, config={"session.disable_quant_qdq": "1"}) == ["MatMul"]


def test_a_node_that_fails_is_left_to_fail_when_it_runs():
    model = build(
        [node("Reshape", ["c", "s"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [X],
        [Y],
        {"c": f32([1, 2, 3]), "s": np.array([2, 2])},
    )
    assert basic_ops(model) == ["Reshape", "Add"]


def test_sizes_are_folded_where_they_are_known():
    """The shape (n, 3) is not known, its last element is."""
    model = build(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "one"], ["d"]),
            node("Concat", ["minus", "d"], ["t"], axis=0),
            node("Reshape", ["z", "t"], ["y"]),
        ],
        [("x", FLOAT, ["n", 3]), ("z", FLOAT, [6])],
        [("y", FLOAT, [2, 3])],
        {"one": np.array([1]), "minus": np.array([-1])},
    )
    graph = basic_graph(model)
    assert [found.op_type for found in graph.nodes] == ["Reshape"]
    assert graph.constant("t").numpy().tolist() == [-1, 3]
    assert_equal_at_levels(model)


def test_unknown_sizes_are_not_folded():
    model = build([node("Shape", ["x"], ["y"])], [("x", FLOAT, ["n", 3])], [("y", TensorProto.INT64, [2])])
    assert basic_ops(model) == ["Shape"]
    assert_equal_at_levels(model, {"x": f32(np.ones((5, 3)))})


def branch(name, *nodes, output, initializers=()):
    tensors = [numpy_helper.from_array(array, key) for key, array in initializers]
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(output, FLOAT, [2, 3])], tensors)


@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_of_a_known_condition_replaces_its_if(condition):
    """Names of the branch that the graph has too are changed."""
    then = branch(
        "t", node("Exp", ["a"], ["t"]), node("Add", ["t", "k"], ["u"]), output="u", initializers=[("k", f32([1, 2, 3]))]
    )
    other = branch("e", node("Neg", ["a"], ["t"]), output="t")
    model = build(
        [
            node("Relu", ["x"], ["a"]),
            node("If", ["c"], ["b"], then_branch=then, else_branch=other),
            node("Mul", ["b", "k2"], ["y"]),
        ],
        [X],
        [Y],
        {"c": np.array(condition), "k2": f32([4, 5, 6])},
    )
    assert basic_ops(model) == (["Relu", "Exp", "Add", "Mul"] if condition else ["Relu", "Neg", "Mul"])
    assert_equal_at_levels(model)


def test_a_branch_may_give_the_same_value_twice_or_an_outer_one():
    def give(name, *names, nodes=()):
        return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(each, FLOAT, [2, 3]) for each in names])

    then = give("t", "t", "t2", nodes=[node("Exp", ["x"], ["t"]), node("Identity", ["t"], ["t2"])])
    other = give("e", "n", "n2", nodes=[node("Neg", ["x"], ["n"]), node("Abs", ["x"], ["n2"])])
    model = build(
        [node("If", ["c"], ["y", "z"], then_branch=then, else_branch=other)],
        [X],
        [Y, ("z", FLOAT, [2, 3])],
        {"c": np.array(True)},
    )
    assert basic_ops(model) == ["Exp", "Identity"]
    assert_equal_at_levels(model)


def test_bodies_see_the_constants_around_them():
    body = helper.make_graph(
        [node("Mul", ["k", "k"], ["kk"]), node("Add", ["s", "kk"], ["o"]), node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [2, 3]),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("o", FLOAT, [2, 3])],
    )
    model = build([node("Loop", ["n", "", "x"], ["y"], body=body)], [X], [Y], {"k": f32([1, 2, 3]), "n": np.array(4)})
    (loop,) = basic_graph(model).nodes
    assert [found.op_type for found in loop.attributes["body"].nodes] == ["Add", "Identity"]
    assert loop.implicit_inputs == []
    assert_equal_at_levels(model)
