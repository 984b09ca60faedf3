"""Graphs written back as protobuf and read again."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.api import InvalidGraph
from ort_sdk.formats.onnx.reader.types import type_string
from ort_sdk.formats.onnx.writer.to_proto import graph_to_proto, node_to_proto, type_to_proto
from ort_sdk.graph import AttributeReference, Graph, Node, SparseTensor, TypeString
from ort_sdk.loader import load_model

TYPES = [
    "tensor(float)",
    "tensor(int4)",
    "sparse_tensor(double)",
    "seq(tensor(string))",
    "optional(seq(tensor(bfloat16)))",
    "map(int64,seq(tensor(float)))",
    "map(string,map(int64,tensor(float)))",
    "opaque(acme,thing)",
    "opaque(thing)",
]


@pytest.mark.parametrize("text", TYPES)
def test_types(text) -> None:
    assert type_string(type_to_proto(text), "it") == text


def test_types_that_are_none() -> None:
    assert type_string(type_to_proto(None), "it") is None
    with pytest.raises(InvalidGraph, match="no type of ONNX"):
        type_to_proto("list(float)")


def test_a_graph_comes_back_as_it_was(rich_model) -> None:
    model = load_model(rich_model.SerializeToString())
    rich_model.graph.CopyFrom(graph_to_proto(model.graph))
    again = load_model(rich_model.SerializeToString())
    assert describe(again.graph) == describe(model.graph)


def describe(graph: Graph) -> list:
    nodes = [
        (node.op_type, node.domain, node.inputs, node.outputs, [describe(body) for body in node.subgraphs.values()])
        for node in graph.nodes
    ]
    tensors = {name: tensor.numpy().tolist() for name, tensor in graph.initializers.items()}
    return [graph.name, graph.inputs, graph.outputs, nodes, tensors]


def test_attributes_of_every_kind(add_model) -> None:
    attributes = {
        "i": 3,
        "f": 0.5,
        "s": "text",
        "is": [1, 2],
        "fs": [0.5],
        "ss": ["a", "b"],
        "none": [],
        "tp": TypeString("seq(tensor(float))"),
        "tps": [TypeString("tensor(int8)")],
        "sp": SparseTensor(np.ones(2, np.float32), np.arange(2), (4,)),
    }
    proto = node_to_proto(Node("Any", ["x"], ["y"], attributes, domain="acme", name="n", overload="o"))
    proto.attribute.append(helper.make_attribute("t", numpy_helper.from_array(np.arange(3))))
    node = load_model(add_model(nodes=[proto]).SerializeToString()).graph.nodes[0]
    assert (node.name, node.overload, node.domain) == ("n", "o", "acme")
    for name, value in attributes.items():
        if name != "sp":
            assert node.attributes[name] == value
            assert type(node.attributes[name]) is type(value)
    np.testing.assert_array_equal(node.attributes["sp"].to_dense(), [1, 1, 0, 0])
    back = node_to_proto(node)
    assert numpy_helper.to_array(back.attribute[-1].t).tolist() == [0, 1, 2]


def test_references_to_attributes() -> None:
    proto = node_to_proto(Node("Elu", ["x"], ["y"], {"alpha": AttributeReference("slope")}))
    assert proto.attribute[0].ref_attr_name == "slope"


def test_strings_keep_their_bytes(add_model) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    graph = load_model(add_model([tensor]).SerializeToString()).graph
    assert graph_to_proto(graph).initializer[0].string_data[0] == b"\xff"
