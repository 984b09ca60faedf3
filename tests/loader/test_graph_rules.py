"""Graphs: order, names, bodies, schemas, initializers and attributes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from ort_sdk.api import InvalidGraph, NodeArg, OrtSdkError, Tensor
from ort_sdk.graph import AttributeReference, SparseTensor
from ort_sdk.loader import load_model

W = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")


def load(model: onnx.ModelProto):
    return load_model(model.SerializeToString())


def value(name: str, kind: int = TensorProto.FLOAT, shape=None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def test_values_and_nodes(add_model) -> None:
    model = load(add_model([W], nodes=[helper.make_node("Add", ["x", "w"], ["y"], domain="ai.onnx")]))
    (node,) = model.graph.nodes
    assert (node.op_type, node.domain, node.name, node.since_version) == ("Add", "", "", 14)
    assert model.graph.inputs == [NodeArg("x", "tensor(float)", ("N", 4))]
    assert model.graph.node_arg("w") == NodeArg("w", "tensor(float)", (4,))
    assert model.graph.outputs == [NodeArg("y", "tensor(float)", None)]
    assert isinstance(model.graph.constant("w"), Tensor)


def test_since_version_of_the_opset(add_model) -> None:
    assert load(add_model([W], opset=13)).graph.nodes[0].since_version == 13
    assert load(add_model([W], opset=6, ir_version=3)).graph.nodes[0].since_version == 6


def test_unsorted_nodes_are_sorted_and_sorted_ones_kept(add_model) -> None:
    nodes = [
        helper.make_node("Add", ["b", "a"], ["y"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Neg", ["x"], ["a"]),
    ]
    assert [node.op_type for node in load(add_model(nodes=nodes)).graph.nodes] == ["Neg", "Abs", "Add"]
    parallel = [helper.make_node("Neg", ["x"], [f"a{index}"]) for index in range(5)] + [
        helper.make_node("Sum", ["a3", "a1"], ["y"])
    ]
    assert [node.outputs[0] for node in load(add_model(nodes=parallel)).graph.nodes] == ["a0", "a1", "a2", "a3", "a4", "y"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([("Add", ["x", "y"], ["a"]), ("Abs", ["a"], ["y"])], "cycle"),
        ([("Abs", ["y"], ["y"])], "cycle"),
        ([("Add", ["x", "none"], ["y"])], r"reads \['none'\]"),
        ([("Abs", ["x"], ["y"]), ("Neg", ["x"], ["y"])], "names must be unique"),
        ([("Abs", ["x"], ["x"]), ("Abs", ["x"], ["y"])], "names must be unique"),
        ([("Abs", ["x"], ["w"]), ("Abs", ["x"], ["y"])], "names must be unique"),
        ([("Split", ["x"], ["y", "y"])], "names must be unique"),
        ([("Abs", ["x"], ["z"])], "output 'y' of graph 'main' is made by no node"),
        ([("Add", ["x"], ["y"])], "has 1 inputs; its operator takes 2 to 2"),
        ([("Abs", ["x"], ["y", "z"])], "has 2 outputs; its operator takes 1 to 1"),
        ([("Cast", ["x"], ["y"])], r"lacks the required attributes \['to'\]"),
        ([("Foo", ["x"], ["y"])], "No Op registered for Foo with domain_version of 17"),
        ([("Gelu", ["x"], ["y"])], "No Op registered for Gelu with domain_version of 17; the operator exists in later versions"),
        ([("Upsample", ["x", "w"], ["y"])], "Op registered for Upsample is deprecated in domain_version of 17"),
    ],
)
def test_broken_graphs(add_model, nodes, reason) -> None:
    with pytest.raises(InvalidGraph, match=reason):
        load(add_model([W], nodes=[helper.make_node(*node) for node in nodes]))


def test_duplicate_and_nameless_values(add_model) -> None:
    with pytest.raises(InvalidGraph, match="initializer 'w' twice"):
        load(add_model([W, W]))
    model = add_model([W])
    model.graph.input.append(model.graph.input[0])
    with pytest.raises(InvalidGraph, match="input 'x' twice"):
        load(model)
    with pytest.raises(InvalidGraph, match="initializer without a name"):
        load(add_model([W, numpy_helper.from_array(np.zeros(2))]))


def test_domains_without_schemas_are_left_to_providers(add_model) -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["y"], domain="acme")]
    assert load(add_model(nodes=nodes, extra_imports=[helper.make_opsetid("acme", 5)])).graph.nodes[0].since_version == 5
    assert load(add_model(nodes=nodes)).graph.nodes[0].since_version == 1


def test_known_domains_need_no_import(add_model) -> None:
    gelu = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    assert load(add_model(nodes=[gelu])).graph.nodes[0].since_version == 1
    with pytest.raises(InvalidGraph, match="No Op registered for NoSuch"):
        load(add_model(nodes=[helper.make_node("NoSuch", ["x"], ["y"], domain="com.microsoft")]))


@pytest.mark.parametrize(("ir_version", "inputs", "constant"), [(3, ["x"], True), (4, ["x", "w"], False)])
def test_initializers_among_the_inputs(add_model, ir_version, inputs, constant) -> None:
    model = add_model([W], opset=8, ir_version=ir_version)
    model.graph.input.append(value("w", shape=["K"]))
    graph = load(model).graph
    assert [argument.name for argument in graph.inputs] == inputs
    assert graph.is_overridable("w") != constant
    assert (graph.constant("w") is not None) == constant


def test_a_default_of_another_type_than_its_input(add_model) -> None:
    model = add_model([W])
    model.graph.input.append(value("w", TensorProto.DOUBLE))
    with pytest.raises(InvalidGraph, match=r"initializer 'w' has element type tensor\(float\) .* expects tensor\(double\)"):
        load(model)


def branch(name: str, *nodes, output: str = "b", inputs=(), initializers=()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, list(inputs), [value(output)], list(initializers))


def test_bodies_capture_what_they_read_and_do_not_define(add_model) -> None:
    inner = branch("inner", helper.make_node("Add", ["w", "local"], ["i"]), output="i")
    outer = branch(
        "outer",
        helper.make_node("Abs", ["x"], ["local"]),
        helper.make_node("If", ["flag"], ["b"], then_branch=inner, else_branch=inner),
    )
    flat = branch("flat", helper.make_node("Neg", ["late"], ["b"]))
    nodes = [
        helper.make_node("If", ["flag"], ["y"], then_branch=outer, else_branch=flat),
        helper.make_node("Neg", ["x"], ["late"]),
    ]
    model = add_model([W, numpy_helper.from_array(np.array(True), "flag")], nodes=nodes)
    graph = load(model).graph
    assert [node.op_type for node in graph.nodes] == ["Neg", "If"]
    call = graph.nodes[1]
    assert call.implicit_inputs == ["late", "x", "flag", "w"]
    then = call.subgraphs["then_branch"]
    assert then.parent is graph
    assert then.nodes[1].implicit_inputs == ["w", "local"]
    assert then.nodes[1].subgraphs["then_branch"].parent is then
    assert then.constant("w") is graph.initializers["w"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (branch("b", helper.make_node("Abs", ["nothing"], ["b"])), r"reads \['nothing'\]"),
        (branch("b", output="x"), "output 'x' of graph 'b' is made by no node, input or initializer of that graph"),
        (branch("b", helper.make_node("Abs", ["c"], ["b"]), helper.make_node("Abs", ["b"], ["c"])), "graph 'b' has a cycle"),
        (branch("b", helper.make_node("Abs", ["y"], ["b"])), "graph 'main' has a cycle"),
        (branch("b", helper.make_node("Abs", ["x"], ["b"]), helper.make_node("Neg", ["x"], ["b"])), "names must be unique"),
    ],
)
def test_broken_bodies(add_model, body, reason) -> None:
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)]
    with pytest.raises(InvalidGraph, match=reason):
        load(add_model(nodes=nodes))


def test_constants_become_initializers(add_model) -> None:
    made = {
        "value": (numpy_helper.from_array(np.arange(3, dtype=np.int8)), np.arange(3, dtype=np.int8)),
        "value_float": (1.5, np.array(1.5, np.float32)),
        "value_floats": ([1.0, 2.0], np.array([1, 2], np.float32)),
        "value_int": (7, np.array(7, np.int64)),
        "value_ints": ([7, 8], np.array([7, 8], np.int64)),
        "value_string": ("a", np.array("a", object)),
        "value_strings": (["a", "b"], np.array(["a", "b"], object)),
    }
    nodes = [helper.make_node("Constant", [], [name], **{name: given}) for name, (given, _) in made.items()]
    nodes.append(helper.make_node("Abs", ["x"], ["y"]))
    graph = load(add_model(nodes=nodes)).graph
    assert [node.op_type for node in graph.nodes] == ["Abs"]
    for name, (_, expected) in made.items():
        found = graph.constant(name).numpy()
        np.testing.assert_array_equal(found, expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert graph.node_arg(name).shape == expected.shape


def sparse(values: onnx.TensorProto, indices: np.ndarray, dims: list[int]) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=numpy_helper.from_array(indices, "i"), dims=dims)


SPARSE_VALUES = numpy_helper.from_array(np.array([5, 6], np.float32), "w")


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_initializers(add_model, indices, dtype) -> None:
    model = add_model()
    model.graph.sparse_initializer.append(sparse(SPARSE_VALUES, np.array(indices, dtype), [2, 3]))
    tensor = load(model).graph.constant("w")
    assert (tensor.shape, tensor.nbytes) == ((2, 3), 24)
    np.testing.assert_array_equal(tensor.numpy(), [[0, 5, 0], [0, 0, 6]])
    np.testing.assert_array_equal(tensor.packed().view(np.float32), [0, 5, 0, 0, 0, 6])


@pytest.mark.parametrize(
    ("indices", "dims", "reason"),
    [
        (np.array([1, 6], np.int64), [2, 3], "outside its shape"),
        (np.array([-1, 5], np.int64), [2, 3], "outside its shape"),
        (np.array([[0, 3], [0, 0]], np.int64), [2, 3], "outside its shape"),
        (np.array([1], np.int64), [2, 3], "for 2 values"),
        (np.array([[1], [2]], np.int64), [2, 3], "for 2 values"),
        (np.array([1, 2], np.uint8), [2, 3], "int64 indices"),
        (np.array([1, 2], np.float32), [2, 3], "int64 indices"),
        (np.array([-1, 2], np.int8), [2, 3], "outside its shape"),
        (np.array([1, 2], np.int64), [2**31, 3], "in dense form"),
        (np.array([1, 2], np.int64), [2**62, 2**62], "more elements than can be addressed"),
        (np.array([1, 2], np.int64), [-2, -3], "must not be negative"),
    ],
)
def test_broken_sparse_initializers(add_model, indices, dims, reason) -> None:
    model = add_model()
    model.graph.sparse_initializer.append(sparse(SPARSE_VALUES, indices, dims))
    with pytest.raises(InvalidGraph, match=reason):
        load(model)


def attributes_of(add_model, *attributes: AttributeProto) -> dict:
    node = onnx.NodeProto(op_type="Any", domain="acme", input=["x"], output=["y"], attribute=attributes)
    return load(add_model(nodes=[node])).graph.nodes[0].attributes


def test_attributes(add_model) -> None:
    type_proto = helper.make_optional_type_proto(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))
    map_proto = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.STRING, None))
    graph = branch("g", helper.make_node("Abs", ["x"], ["b"]))
    found = attributes_of(
        add_model,
        helper.make_attribute("i", -3),
        helper.make_attribute("f", 0.5),
        helper.make_attribute("s", "é"),
        AttributeProto(name="bytes", type=AttributeProto.STRING, s=b"\xff"),
        helper.make_attribute("is", [1, 2]),
        AttributeProto(name="none", type=AttributeProto.INTS),
        helper.make_attribute("fs", [1.0, 2.0]),
        helper.make_attribute("ss", ["a", "b"]),
        helper.make_attribute("t", W),
        helper.make_attribute("ts", [W, W]),
        helper.make_attribute("g", graph),
        helper.make_attribute("gs", [graph]),
        helper.make_attribute("sp", sparse(SPARSE_VALUES, np.array([0, 1], np.int64), [4])),
        helper.make_attribute("tp", type_proto),
        helper.make_attribute("tps", [map_proto]),
        AttributeProto(name="untyped", ints=[4]),
        AttributeProto(name="ref", type=AttributeProto.INT, ref_attr_name="outer"),
    )
    assert (found["i"], found["f"], found["s"], found["is"], found["fs"]) == (-3, 0.5, "é", [1, 2], [1.0, 2.0])
    assert found["bytes"].encode("utf-8", "surrogateescape") == b"\xff"
    assert (found["none"], found["ss"], found["untyped"]) == ([], ["a", "b"], [4])
    np.testing.assert_array_equal(found["t"].numpy(), np.arange(4))
    assert [tensor.shape for tensor in found["ts"]] == [(4,), (4,)]
    assert found["g"].nodes[0].op_type == found["gs"][0].nodes[0].op_type == "Abs"
    assert isinstance(found["sp"], SparseTensor)
    np.testing.assert_array_equal(found["sp"].to_dense(), [5, 6, 0, 0])
    assert (found["tp"], found["tps"]) == ("optional(seq(tensor(float)))", ["map(int64,tensor(string))"])
    assert found["ref"] == AttributeReference("outer")


def test_broken_attributes(add_model) -> None:
    with pytest.raises(InvalidGraph, match="attribute 'a' twice"):
        attributes_of(add_model, helper.make_attribute("a", 1), helper.make_attribute("a", 2))
    with pytest.raises(InvalidGraph, match="neither a type nor a value"):
        attributes_of(add_model, AttributeProto(name="a"))
    with pytest.raises(InvalidGraph, match="element type code 77"):
        attributes_of(add_model, helper.make_attribute("a", helper.make_tensor_type_proto(77, None)))


@pytest.mark.parametrize(
    ("proto", "kind", "shape"),
    [
        (helper.make_tensor_type_proto(TensorProto.BFLOAT16, [1, "n", None]), "tensor(bfloat16)", (1, "n", None)),
        (helper.make_tensor_type_proto(TensorProto.FLOAT, [-1]), "tensor(float)", (None,)),
        (helper.make_tensor_type_proto(TensorProto.FLOAT, []), "tensor(float)", ()),
        (helper.make_tensor_type_proto(TensorProto.FLOAT, None), "tensor(float)", None),
        (helper.make_sparse_tensor_type_proto(TensorProto.INT4, [2]), "sparse_tensor(int4)", (2,)),
        (helper.make_sequence_type_proto(helper.make_tensor_type_proto(8, None)), "seq(tensor(string))", None),
        (onnx.TypeProto(), None, None),
    ],
)
def test_types_of_values(add_model, proto, kind, shape) -> None:
    model = add_model([W])
    model.graph.value_info.append(helper.make_value_info("v", proto))
    assert load(model).graph.node_arg("v") == NodeArg("v", kind, shape)


def test_hostile_sizes_do_not_take_long(add_model) -> None:
    model = add_model([TensorProto(name="w", data_type=1, dims=[2**40], data_location=TensorProto.DEFAULT)])
    with pytest.raises(OrtSdkError):
        load(model)
