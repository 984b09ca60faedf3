"""Functions: the model's own, and those by which ONNX defines operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.api import InvalidGraph
from ort_sdk.formats.onnx.writer.to_proto import graph_to_proto
from ort_sdk.graph import AttributeReference, Graph, Node
from ort_sdk.graph.inline import inline_function
from ort_sdk.loader import load_model
from ort_sdk.loader.functions import operator_function

LOCAL = [helper.make_opsetid("local", 1)]


def function(name: str, nodes, inputs=("a",), outputs=("r",), opset: int = 17, **options) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), *LOCAL]
    return helper.make_function("local", name, inputs, outputs, nodes, imports, **options)


def local(name: str, inputs=("x",), outputs=("y",), **attributes) -> onnx.NodeProto:
    return helper.make_node(name, list(inputs), list(outputs), domain="local", **attributes)


def load(add_model, nodes, *functions):
    return load_model(add_model(nodes=nodes, functions=functions, extra_imports=LOCAL).SerializeToString())


def test_model_functions(add_model) -> None:
    nodes = [helper.make_node("Elu", ["a"], ["r"])]
    nodes[0].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    proto = function("F", nodes, opset=6, attributes=["slope"], attribute_protos=[helper.make_attribute("other", 3)])
    model = load(add_model, [local("F", slope=0.5)], proto)
    found = model.functions["local", "F", ""]
    assert (found.inputs, found.outputs, found.attributes) == (("a",), ("r",), ("slope",))
    assert found.attribute_defaults == {"other": 3}
    assert found.opset_imports[""] == 6
    assert found.nodes[0].since_version == 6
    assert found.nodes[0].attributes == {"alpha": AttributeReference("slope")}
    assert model.graph.nodes[0].since_version == 1


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ([("F", [local("F", ["a"], ["r"])])], "circle: local::F"),
        ([("F", [local("G", ["a"], ["r"])]), ("G", [local("F", ["a"], ["r"])])], "circle: local::F, local::G"),
        ([("F", [helper.make_node("Abs", ["a"], ["r"])])] * 2, "defines the function local::F .* twice"),
        ([("F", [helper.make_node("Abs", ["b"], ["r"])])], r"reads \['b'\]"),
        ([("F", [helper.make_node("Abs", ["a"], ["b"])])], "output 'r' of graph 'function local::F'"),
        ([("F", [helper.make_node("Nope", ["a"], ["r"])])], "No Op registered for Nope"),
    ],
)
def test_broken_functions(add_model, functions, reason) -> None:
    with pytest.raises(InvalidGraph, match=reason):
        load(add_model, [local("F")], *(function(name, nodes) for name, nodes in functions))


def test_functions_that_explode_when_inlined(add_model) -> None:
    doubling = [function("F0", [helper.make_node("Abs", ["a"], ["r"])])]
    for level in range(1, 60):
        calls = [local(f"F{level - 1}", ["a"], ["b"]), local(f"F{level - 1}", ["b"], ["r"])]
        doubling.append(function(f"F{level}", calls))
    with pytest.raises(InvalidGraph, match="would inline to more than"):
        load(add_model, [local("F59")], *doubling)


def operator_graph(proto: onnx.NodeProto, *inputs: onnx.ValueInfoProto, opset: int) -> Graph:
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in proto.output]
    graph = helper.make_graph([proto], "main", list(inputs), outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return load_model(model.SerializeToString()).graph


def float_value(name: str, shape=None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def body_of(graph: Graph, opset: int):
    return operator_function(graph.nodes[0], graph, opset)


def test_operators_without_a_body() -> None:
    graph = operator_graph(helper.make_node("Add", ["x", "x"], ["y"]), float_value("x"), opset=17)
    assert body_of(graph, 17) is None
    assert operator_function(Node("Mystery", ["x"], ["y"], domain="acme"), graph, 1) is None
    assert operator_function(Node("El\udcffu", ["x"], ["y"]), graph, 1) is None
    assert operator_function(Node("Elu", ["x"], ["y"], domain="\udcff"), graph, 1) is None


def test_a_fixed_body_with_the_schemas_defaults() -> None:
    found = body_of(operator_graph(helper.make_node("Elu", ["x"], ["y"]), float_value("x"), opset=22), 22)
    assert (found.inputs, found.outputs) == (("X",), ("Y",))
    assert found.attribute_defaults == {"alpha": 1.0}
    assert found.opset_imports[""] == 18
    assert {node.op_type: node.since_version for node in found.nodes}["CastLike"] == 15


@pytest.mark.parametrize(("opset", "reduction"), [(13, 13), (17, 13), (18, 18)])
def test_the_body_for_the_opset(opset, reduction) -> None:
    found = body_of(operator_graph(helper.make_node("Softmax", ["x"], ["y"]), float_value("x"), opset=opset), opset)
    assert {node.op_type: node.since_version for node in found.nodes}["ReduceMax"] == reduction


def test_a_body_that_depends_on_attributes_and_types() -> None:
    exact = body_of(operator_graph(helper.make_node("Gelu", ["x"], ["y"]), float_value("x"), opset=20), 20)
    fast = body_of(operator_graph(helper.make_node("Gelu", ["x"], ["y"], approximate="tanh"), float_value("x"), opset=20), 20)
    assert "Erf" in {node.op_type for node in exact.nodes}
    assert "Tanh" in {node.op_type for node in fast.nodes}


def test_outputs_that_are_omitted_need_no_maker() -> None:
    targets = helper.make_tensor_value_info("t", TensorProto.INT64, [3])
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"])
    graph = operator_graph(node, float_value("x", [3, 5]), targets, opset=13)
    found = body_of(graph, 13)
    assert found.outputs == ("output", "")
    assert inline_function(graph, graph.nodes[0], found)
    graph.sort()


def test_a_body_made_of_the_calls_own_body() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2, np.float32))),
            helper.make_node("Mul", ["element", "two"], ["scaled"]),
            helper.make_node("Add", ["scaled", "shift"], ["r"]),
        ],
        "each",
        [float_value("element")],
        [float_value("r")],
    )
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))
    output = helper.make_value_info("y", sequence.type)
    nodes = [helper.make_node("Abs", ["x"], ["shift"]), helper.make_node("SequenceMap", ["s"], ["y"], body=body)]
    main = helper.make_graph(nodes, "main", [sequence, float_value("x", [])], [output])
    proto = helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = load_model(proto.SerializeToString()).graph
    call = graph.nodes[1]
    new = inline_function(graph, call, operator_function(call, graph, 17))
    graph.sort()
    loop = next(node for node in new if node.op_type == "Loop")
    assert "shift" in loop.implicit_inputs
    expected = run(proto.graph, {"s": [np.ones(2, np.float32), np.zeros(3, np.float32)], "x": np.array(-3, np.float32)})
    found = run(graph_to_proto(graph), {"s": [np.ones(2, np.float32), np.zeros(3, np.float32)], "x": np.array(-3, np.float32)})
    for left, right in zip(found[0], expected[0], strict=True):
        np.testing.assert_array_equal(left, right)


def run(graph: onnx.GraphProto, feeds: dict, opset: int = 17) -> list:
    """Result of onnxruntime, for comparison."""
    import onnxruntime

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        (helper.make_node("LayerNormalization", ["x", "w"], ["y"], axis=1), 17),
        (helper.make_node("Softmax", ["x"], ["y"], axis=0), 18),
        (helper.make_node("Selu", ["x"], ["y"], gamma=1.5), 18),
        (helper.make_node("HardSwish", ["x"], ["y"]), 18),
        (helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[1]), 18),
        (helper.make_node("ReduceL2", ["x"], ["y"], keepdims=0), 18),
        (helper.make_node("Clip", ["x", "", "m"], ["y"]), 18),
    ],
    ids=lambda value: getattr(value, "op_type", None),
)
def test_inlined_operators_compute_the_same(node, opset) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    inputs = [float_value("x", [3, 4]), float_value("w", [4]), float_value("m", [])]
    feeds = {"x": values, "w": values[0] + 2, "m": np.array(0.5, np.float32)}
    used = [value for value in inputs if value.name in node.input]
    graph = operator_graph(node, *used, opset=opset)
    expected = run(graph_to_proto(graph), {value.name: feeds[value.name] for value in used}, opset)
    for _ in range(3):
        for call in list(graph.nodes):
            found = operator_function(call, graph, opset)
            if found is not None:
                inline_function(graph, call, found)
    graph.sort()
    assert node.op_type not in {inner.op_type for inner in graph.nodes}
    result = run(graph_to_proto(graph), {value.name: feeds[value.name] for value in used}, opset)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-5, atol=1e-6)
