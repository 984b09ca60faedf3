"""Replacing a call of a function by the function's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ort_sdk.api import InvalidGraph, NodeArg, find_schema
from ort_sdk.api.data_classes import dataclass

from .attribute_check import check_attributes
from .captures import implicit_inputs
from .graph import Graph
from .model import Function
from .node import AttributeReference, Node

__all__ = ["inline_function"]


def inline_function(graph: Graph, node: Node, function: Function, unique_prefix: str | None = None) -> list[Node]:
    """Replace a call by copies of the function's nodes, instead of the call.

    Values and nodes inside the function get a prefix, inputs and outputs the call's names; omitted inputs stay omitted.
    References to attributes become the call's values or the defaults; references to attributes with neither are dropped. Bodies
    of control flow are renamed in their own scopes. Since-versions stay those of the function's opset imports.

    Args:
        graph: holds the call; changed in place.
        node: the call.
        function: its body.
        unique_prefix: starts no name of the graph; made from the call's first output if not given.

    Returns:
        The new nodes, which may be calls themselves.

    Raises:
        InvalidGraph: the call has more inputs or outputs than the function, wants one the function does not make, or gives its
            nodes attributes of a wrong type or lacks some they need.
    """
    _check_call(node, function)
    prefix = _free_prefix(graph, node) if unique_prefix is None else unique_prefix
    names, aliases = _boundary_names(node, function)
    for inner in _defined(function.nodes):
        names.setdefault(inner, prefix + inner)
    call = _Call(prefix, {**function.attribute_defaults, **node.attributes})
    new = [call.copy_node(inner, names, graph) for inner in function.nodes]
    new += [_identity(source, output, function) for source, output in aliases]
    position = graph.position(node)
    graph.nodes[position : position + 1] = new
    graph.touch()
    return new


def _check_call(node: Node, function: Function) -> None:
    if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
        raise InvalidGraph(
            f"{node.describe()} calls a function of {len(function.inputs)} inputs and {len(function.outputs)} outputs with "
            f"{len(node.inputs)} and {len(node.outputs)}"
        )
    for formal, actual in zip(function.outputs, node.outputs, strict=False):
        if actual and not formal:
            raise InvalidGraph(f"{node.describe()} wants output '{actual}', which the body of its function does not make")


def _boundary_names(node: Node, function: Function) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Function's name → name in the graph for inputs and outputs, and (source, output) of outputs that need a copy."""
    names = {formal: node.inputs[index] if index < len(node.inputs) else "" for index, formal in enumerate(function.inputs)}
    aliases: list[tuple[str, str]] = []
    for formal, actual in zip(function.outputs, node.outputs, strict=False):
        if actual and formal in names:
            # An input, or a value given out twice.
            aliases.append((names[formal], actual))
        elif actual:
            names[formal] = actual
    return names, aliases


def _identity(source: str, output: str, function: Function) -> Node:
    schema = find_schema("Identity", function.opset_imports.get("", 1))
    return Node("Identity", [source], [output], since_version=schema.since_version if schema is not None else 1)


def _defined(nodes: Iterable[Node]) -> Iterable[str]:
    return (name for node in nodes for name in node.outputs if name)


def _free_prefix(graph: Graph, node: Node) -> str:
    """A prefix that no value of the graph, an enclosing one or a body starts with."""
    base = f"{node.name or node.op_type}_{next(filter(None, node.outputs), '')}"
    root = graph
    while root.parent is not None:
        root = root.parent
    taken = {name for inner in root.walk() for name in _names(inner) if name.startswith(base)}
    prefix, number = f"{base}/", 1
    while any(name.startswith(prefix) for name in taken):
        number += 1
        prefix = f"{base}_{number}/"
    return prefix


def _names(graph: Graph) -> Iterable[str]:
    yield from graph.values
    yield from graph.initializers
    yield from _defined(graph.nodes)


@dataclass(frozen=True, slots=True)
class _Call:
    """What does not change from node to node of one call."""

    prefix: str
    attributes: Mapping[str, Any]

    def copy_node(self, node: Node, names: Mapping[str, str], graph: Graph) -> Node:
        duplicate = Node(
            op_type=node.op_type,
            inputs=[names.get(name, name) for name in node.inputs],
            outputs=[names.get(name, name) for name in node.outputs],
            attributes=dict(self._attributes(node, names, graph)),
            domain=node.domain,
            name=self.prefix + node.name if node.name else "",
            overload=node.overload,
            since_version=node.since_version,
        )
        duplicate.implicit_inputs = implicit_inputs(duplicate)
        if any(isinstance(value, AttributeReference) for value in node.attributes.values()):
            schema = find_schema(node.op_type, node.since_version, node.domain)
            if schema is not None:
                check_attributes(duplicate, schema)
        return duplicate

    def _attributes(self, node: Node, names: Mapping[str, str], graph: Graph) -> Iterable[tuple[str, Any]]:
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                yield name, self._copy_body(value, names, graph)
            elif not isinstance(value, AttributeReference):
                yield name, value
            elif value.name in self.attributes:
                given = self.attributes[value.name]
                # A body given by the caller lives in the caller's scope: it keeps its names.
                yield name, given.copy(graph) if isinstance(given, Graph) else given

    def _copy_body(self, body: Graph, names: Mapping[str, str], parent: Graph) -> Graph:
        local = {argument.name for argument in body.inputs} | body.initializers.keys() | set(_defined(body.nodes))
        scope = {**names, **{name: self.prefix + name for name in local}}

        def renamed(argument: NodeArg) -> NodeArg:
            return replace(argument, name=scope.get(argument.name, argument.name))

        duplicate = Graph(
            name=body.name,
            inputs=[renamed(argument) for argument in body.inputs],
            outputs=[renamed(argument) for argument in body.outputs],
            initializers={scope[name]: tensor for name, tensor in body.initializers.items()},
            values={value.name: value for value in map(renamed, body.values.values())},
            doc_string=body.doc_string,
            metadata=dict(body.metadata),
        )
        duplicate.parent = parent
        duplicate.nodes = [self.copy_node(node, scope, duplicate) for node in body.nodes]
        return duplicate
