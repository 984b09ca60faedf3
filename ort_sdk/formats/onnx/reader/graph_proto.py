"""``GraphProto`` and ``NodeProto`` → Graph and Node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ort_sdk.api import Fail, InvalidGraph, tensor_type
from ort_sdk.formats.versions import OperatorResolver, normal_domain
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.captures import implicit_inputs

from .attributes import AttributeReader
from .tensor_proto import TensorReader
from .types import node_arg

__all__ = ["GraphReader", "read_metadata", "sort_graph"]

_FIRST_IR_VERSION_WITH_DEFAULTS = 4
"""Below it, initializers had to be listed as inputs and were constants all the same."""


class GraphReader:
    """Converts graphs and nodes in one scope of opset imports.

    Args:
        ir_version: the model's.
        resolver: schema look-up of the scope.
        tensors: decodes constants.
    """

    def __init__(self, ir_version: int, resolver: OperatorResolver, tensors: TensorReader) -> None:
        self._ir_version = ir_version
        self._resolver = resolver
        self._tensors = tensors

    def read_graph(self, proto: Any, parent: Graph | None = None) -> Graph:
        """Convert a graph with its bodies; nodes keep the file's order.

        Raises:
            InvalidGraph: duplicate names, or nodes that do not fit their operator's schema.
            Fail: an input of a main graph has no type.
        """
        graph = Graph(name=proto.name, doc_string=proto.doc_string, metadata=read_metadata(proto.metadata_props))
        graph.parent = parent
        self._read_values(graph, proto)
        self._read_initializers(graph, proto)
        graph.nodes = self.read_nodes(proto.node, graph)
        return graph

    def _read_values(self, graph: Graph, proto: Any) -> None:
        graph.outputs = [node_arg(value) for value in proto.output]
        graph.inputs = [node_arg(value) for value in proto.input]
        _refuse_duplicates((argument.name for argument in graph.inputs), "input", graph)
        for argument in (*map(node_arg, proto.value_info), *graph.outputs, *graph.inputs):
            graph.set_value(argument)

    def _read_initializers(self, graph: Graph, proto: Any) -> None:
        read = self._tensors.read if graph.parent is not None else self._tensors.read_initializer
        tensors = [(tensor.name, read(tensor)) for tensor in proto.initializer]
        tensors += [(tensor.values.name, self._tensors.read_sparse_initializer(tensor)) for tensor in proto.sparse_initializer]
        _refuse_duplicates((name for name, _ in tensors), "initializer", graph)
        declared = {argument.name: argument.type for argument in graph.inputs}
        for name, tensor in tensors:
            graph.add_initializer(name, tensor)
            if declared.get(name) not in (None, tensor_type(tensor.element_type)):
                raise InvalidGraph(
                    f"Type Error: Data in initializer '{name}' has element type {tensor_type(tensor.element_type)} but usage of "
                    f"initializer in graph expects {declared[name]}"
                )
        if self._ir_version < _FIRST_IR_VERSION_WITH_DEFAULTS:
            graph.inputs = [argument for argument in graph.inputs if argument.name not in graph.initializers]
        for argument in graph.inputs:
            if argument.type is None and graph.parent is None and argument.name not in graph.initializers:
                raise Fail(f"This is an invalid model. Model input ({argument.name}) does not have type information.")
            if argument.type is not None:
                # A feed may have another shape than the default.
                graph.set_value(argument)

    def read_nodes(self, protos: Iterable[Any], graph: Graph) -> list[Node]:
        """Convert nodes; ``graph`` becomes the parent of their bodies."""
        reader = AttributeReader(self._tensors.read, self._tensors.read_sparse, lambda proto: self.read_graph(proto, graph))
        return [self._read_node(proto, reader) for proto in protos]

    def _read_node(self, proto: Any, reader: AttributeReader) -> Node:
        node = Node(
            op_type=proto.op_type,
            inputs=list(proto.input),
            outputs=list(proto.output),
            domain=normal_domain(proto.domain),
            name=proto.name,
            overload=proto.overload,
        )
        for attribute in proto.attribute:
            name = attribute.name
            if name in node.attributes:
                raise InvalidGraph(f"{node.describe()} has the attribute '{name}' twice")
            node.attributes[name] = reader.read(attribute, node.describe)
        self._resolver.resolve(node)
        if node.subgraphs:
            node.implicit_inputs = implicit_inputs(node)
        return node


def read_metadata(protos: Iterable[Any]) -> dict[str, str]:
    """``StringStringEntryProto`` messages → dictionary; of equal keys the last one counts."""
    return {entry.key: entry.value for entry in protos}


def sort_graph(graph: Graph, outer: Iterable[str] = ()) -> None:
    """Put a graph and its bodies in topological order, and check that every value has a maker.

    Args:
        graph: changed in place.
        outer: values of enclosing graphs that may be read.

    Raises:
        InvalidGraph: a cycle, a value made twice, read or given out without a maker, or a body that gives out an outer value.
    """
    graph.sort(outer)
    made = {argument.name for argument in graph.inputs} | graph.initializers.keys()
    made.update(name for node in graph.nodes for name in node.outputs if name)
    for argument in graph.outputs:
        if argument.name not in made:
            raise InvalidGraph(
                f"output '{argument.name}' of graph '{graph.name}' is made by no node, input or initializer of that graph"
            )
    for node in graph.nodes if graph.bodies() else ():
        for body in node.subgraphs.values():
            sort_graph(body, node.implicit_inputs)


def _refuse_duplicates(names: Iterable[str], what: str, graph: Graph) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise InvalidGraph(f"graph '{graph.name}' has an {what} without a name")
        if name in seen:
            raise InvalidGraph(f"graph '{graph.name}' has the {what} '{name}' twice: names must be unique")
        seen.add(name)
