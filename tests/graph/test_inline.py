"""Function calls replaced by the function's nodes."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidGraph, NodeArg
from ort_sdk.graph import ArrayTensor, AttributeReference, Function, Graph, Node
from ort_sdk.graph.captures import free_values, implicit_inputs
from ort_sdk.graph.inline import inline_function


def make_function(nodes, inputs=("a",), outputs=("r",), defaults=None, imports=None) -> Function:
    return Function("F", "local", "", inputs, outputs, (), defaults or {}, tuple(nodes), imports or {"": 17})


def make_graph(*nodes: Node, inputs=("x",), outputs=("y",)) -> Graph:
    graph = Graph("main", list(nodes), [NodeArg(name) for name in inputs], [NodeArg(name) for name in outputs])
    for argument in (*graph.inputs, *graph.outputs):
        graph.set_value(argument)
    return graph


def call(inputs=("x",), outputs=("y",), **attributes) -> Node:
    return Node("F", list(inputs), list(outputs), attributes, domain="local", name="call")


def rows(graph: Graph) -> list[tuple[str, list[str], list[str]]]:
    return [(node.op_type, node.inputs, node.outputs) for node in graph.nodes]


def test_names_inside_get_a_prefix_and_the_boundary_the_calls_names() -> None:
    graph = make_graph(Node("Neg", ["x"], ["n"]), call(["n"], ["m"]), Node("Abs", ["m"], ["y"]))
    body = make_function([Node("Exp", ["a"], ["t"], name="first"), Node("Log", ["t"], ["r"])])
    new = inline_function(graph, graph.nodes[1], body, "p.")
    assert rows(graph) == [
        ("Neg", ["x"], ["n"]),
        ("Exp", ["n"], ["p.t"]),
        ("Log", ["p.t"], ["m"]),
        ("Abs", ["m"], ["y"]),
    ]
    assert [node.name for node in new] == ["p.first", ""]
    assert graph.producer("m") is new[1]
    assert body.nodes[0].inputs == ["a"]


def test_prefixes_made_here_are_free() -> None:
    body = make_function([Node("Exp", ["a"], ["t"]), Node("Log", ["t"], ["r"])])
    graph = make_graph(call(), Node("Abs", ["x"], ["call_y/t"]))
    inline_function(graph, graph.nodes[0], body)
    graph.sort()
    names = [name for node in graph.nodes for name in node.outputs]
    assert len(set(names)) == len(names) == 3


def test_attribute_references() -> None:
    attributes = {"given": AttributeReference("g"), "default": AttributeReference("d"), "none": AttributeReference("n"), "own": 1}
    graph = make_graph(call(g=5))
    inline_function(graph, graph.nodes[0], make_function([Node("Op", ["a"], ["r"], attributes)], defaults={"d": 2.5, "g": 0}))
    assert graph.nodes[0].attributes == {"given": 5, "default": 2.5, "own": 1}


def test_omitted_inputs_and_outputs() -> None:
    nodes = [Node("Clip", ["a", "low", "high"], ["r"]), Node("Abs", ["a"], ["second"])]
    graph = make_graph(call(["x", "", "z"], ["", "y"]), inputs=("x", "z"))
    inline_function(graph, graph.nodes[0], make_function(nodes, ("a", "low", "high"), ("r", "second")), "p.")
    assert rows(graph) == [("Clip", ["x", "", "z"], ["p.r"]), ("Abs", ["x"], ["y"])]
    graph = make_graph(call(["x"], ["y"]))
    inline_function(graph, graph.nodes[0], make_function(nodes, ("a", "low", "high"), ("r", "second")), "p.")
    assert rows(graph) == [("Clip", ["x", "", ""], ["y"]), ("Abs", ["x"], ["p.second"])]


def test_outputs_that_are_inputs_or_given_twice() -> None:
    graph = make_graph(call(["x"], ["y", "z", "q"]), outputs=("y", "z", "q"))
    inline_function(graph, graph.nodes[0], make_function([Node("Abs", ["a"], ["r"])], ("a",), ("a", "r", "r")))
    assert rows(graph) == [("Abs", ["x"], ["z"]), ("Identity", ["x"], ["y"]), ("Identity", ["z"], ["q"])]
    assert graph.nodes[1].since_version == 16
    graph.sort()


@pytest.mark.parametrize(("inputs", "outputs"), [(["x", "x"], ["y"]), (["x"], ["y", "z"])])
def test_calls_that_do_not_fit(inputs, outputs) -> None:
    graph = make_graph(call(inputs, outputs))
    with pytest.raises(InvalidGraph, match="calls a function of 1 inputs and 1 outputs"):
        inline_function(graph, graph.nodes[0], make_function([Node("Abs", ["a"], ["r"])]))


def body(*nodes: Node, inputs=(), output="b", initializers=None) -> Graph:
    graph = Graph("body", list(nodes), [NodeArg(name) for name in inputs], [NodeArg(output)])
    for name, tensor in (initializers or {}).items():
        graph.add_initializer(name, tensor)
    for node in nodes:
        node.implicit_inputs = implicit_inputs(node)
        for nested in node.subgraphs.values():
            nested.parent = graph
    return graph


def control(*bodies: Graph, inputs=("a",), outputs=("r",)) -> Node:
    node = Node("If", list(inputs), list(outputs), {f"body_{index}": each for index, each in enumerate(bodies)})
    node.implicit_inputs = implicit_inputs(node)
    return node


def test_bodies_are_renamed_in_their_scopes() -> None:
    two = ArrayTensor(np.array(2, dtype=np.float32))
    inner = body(Node("Add", ["a", "t"], ["i"]), output="i")
    outer = body(Node("Mul", ["t", "two"], ["m"]), control(inner, outputs=("b",)), initializers={"two": two})
    graph = make_graph(Node("Neg", ["x"], ["two"]), call(["two"]))
    function = make_function([Node("Exp", ["a"], ["t"]), control(outer)])
    new = inline_function(graph, graph.nodes[1], function, "p.")
    copied = new[1].subgraphs["body_0"]
    assert new[1].implicit_inputs == free_values(copied) == ["p.t", "two"]
    assert copied.parent is graph
    assert copied.nodes[0].inputs == ["p.t", "p.two"]
    assert copied.initializers == {"p.two": two}
    assert copied.outputs == [NodeArg("p.b")]
    nested = copied.nodes[1].subgraphs["body_0"]
    assert nested.parent is copied
    assert nested.nodes[0].inputs == ["two", "p.t"]
    assert outer.nodes[0].inputs == ["t", "two"]
    graph.sort()


def test_a_body_may_shadow_the_functions_names() -> None:
    shadowing = body(Node("Abs", ["a"], ["b"]), inputs=("a",))
    graph = make_graph(call())
    (new,) = inline_function(graph, graph.nodes[0], make_function([control(shadowing)]), "p.")
    copied = new.subgraphs["body_0"]
    assert copied.inputs == [NodeArg("p.a")]
    assert copied.nodes[0].inputs == ["p.a"]
    assert new.implicit_inputs == []


def test_a_body_given_by_the_call_keeps_its_names() -> None:
    given = body(Node("Abs", ["a"], ["b"]))
    graph = make_graph(Node("Neg", ["x"], ["a"]), call(["x"], ["y"], then=given))
    node = Node("If", ["a"], ["r"], {"then_branch": AttributeReference("then")})
    (new,) = inline_function(graph, graph.nodes[1], make_function([node]), "p.")
    assert new.inputs == ["x"]
    assert new.implicit_inputs == ["a"]
    assert new.subgraphs["then_branch"].parent is graph


def test_nested_calls() -> None:
    inner = make_function([Node("Exp", ["a"], ["t"]), Node("Log", ["t"], ["r"])])
    outer = make_function([call(["a"], ["m"]), call(["m"], ["r"])])
    graph = make_graph(call())
    for nested in inline_function(graph, graph.nodes[0], outer):
        inline_function(graph, nested, inner)
    assert [node.op_type for node in graph.nodes] == ["Exp", "Log", "Exp", "Log"]
    graph.sort()
    assert len({name for node in graph.nodes for name in node.outputs}) == 4
