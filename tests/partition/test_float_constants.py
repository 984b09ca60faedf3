"""Which constants of half types are read in float."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.graph.derived_tensor import DerivedTensor
from tests.partition.test_keep_float import BFLOAT16, HALF, _kept, _operators, _type

node = helper.make_node
SMALL = np.arange(4, dtype=np.float16).reshape(2, 2)


def test_small_constants_are_float_and_so_is_all_that_a_node_reads_and_makes():
    graph, assignment = _kept([node("MatMul", ["x", "w"], ["y"])], {"y": HALF}, initializers={"w": SMALL})
    assert _operators(graph) == ["Cast", "MatMul", "Cast"]
    product = graph.nodes[1]
    assert product.inputs == ["x_as_float", "w_as_float"]
    assert product.outputs == ["y_as_float"]
    assert {_type(graph, name) for name in (*product.inputs, *product.outputs)} == {"tensor(float)"}
    assert _type(graph, "w") == "tensor(float16)"
    assert [row.op_type for row in assignment.placements] == ["MatMul", "Cast", "Cast"]
    assert all(assignment.kernel_for(each) is not None for each in graph.nodes)
    weight = graph.constant("w_as_float")
    assert isinstance(weight, DerivedTensor)
    np.testing.assert_array_equal(weight.numpy(), SMALL.astype(np.float32))


def test_a_value_and_a_constant_are_made_float_once():
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["x", "w"], ["b"]), node("Add", ["a", "b"], ["y"])]
    graph, assignment = _kept(nodes, {"y": HALF}, initializers={"w": SMALL})
    assert _operators(graph) == ["Cast", "MatMul", "MatMul", "Add", "Cast"]
    assert assignment.kept_in_float == ("a", "b")
    assert graph.nodes[1].inputs == graph.nodes[2].inputs


def test_large_matrices_stay():
    large = np.ones((2, 1 << 15), np.float16)
    graph, _ = _kept([node("MatMul", ["x", "w"], ["y"])], {"y": HALF}, initializers={"w": large})
    assert _operators(graph) == ["Cast", "MatMul", "Cast"]
    assert graph.nodes[1].inputs[1] == "w"
    assert graph.node_arg("w").type == "tensor(float16)"
    assert graph.nodes[0].inputs == ["x"]


def test_large_weights_that_kernels_arrange_are_float():
    weight = np.ones((1 << 10, 1, 1 << 6), np.float16)
    nodes = [node("Unsqueeze", ["x", "axes"], ["s"]), node("Conv", ["s", "w"], ["y"], pads=[31, 31])]
    initializers = {"w": weight, "axes": np.array([1])}
    graph, _ = _kept(nodes, {"y": HALF}, initializers=initializers)
    assert _operators(graph) == ["Unsqueeze", "Cast", "Conv", "Cast"]
    assert graph.nodes[2].inputs == ["s_as_float", "w_as_float"]


def test_bfloat16_is_read_as_it_is():
    constant = helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.5, -2.0])
    graph, _ = _kept(
        [node("Constant", [], ["w"], value=constant), node("Mul", ["x", "w"], ["y"])], {"y": BFLOAT16}, element_type=BFLOAT16
    )
    np.testing.assert_array_equal(graph.constant("w_as_float").numpy(), np.array([1.5, -2.0], np.float32))


@pytest.mark.parametrize("op_type", ["Gather", "Concat"])
def test_constants_that_are_only_moved_stay(op_type):
    inputs, attributes = (["w", "i"], {}) if op_type == "Gather" else (["x", "w"], {"axis": 0})
    graph, _ = _kept([node(op_type, inputs, ["y"], **attributes)], {"y": HALF}, initializers={"w": SMALL, "i": np.array(1)})
    assert _operators(graph) == [op_type]
