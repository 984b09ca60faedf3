"""Graphs → ``Graph``."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.api import NodeArg, Tensor, tensor_type
from ort_sdk.formats.ort.slots import GraphSlot
from ort_sdk.formats.sparse_tensor import DensifiedTensor
from ort_sdk.graph import Graph, Node, SparseTensor
from ort_sdk.graph.constants import lift_constants
from ort_sdk.graph.operator_schemas import OperatorSchemas

from .builder import FileBuilder, offset, u32
from .edges import write_edges
from .nodes import write_node
from .runtime_optimizations import write_runtime_optimizations
from .tensors import write_sparse_tensor, write_tensor
from .values import write_value

__all__ = ["with_lifted_constants", "write_graph"]


def with_lifted_constants(graph: Graph) -> Graph:
    """A copy in which Constant nodes, sparse ones included, are initializers, which is the form files have for them."""
    duplicate = graph.copy()
    lift_constants(duplicate)
    for inner in duplicate.walk():
        kept: list[Node] = []
        for node in inner.nodes:
            value = node.attributes.get("sparse_value") if (node.domain, node.op_type) == ("", "Constant") else None
            if isinstance(value, SparseTensor):
                inner.add_initializer(node.outputs[0], DensifiedTensor(value))
            else:
                kept.append(node)
        inner.nodes = kept
        inner.touch()
    return duplicate


def write_graph(
    builder: FileBuilder,
    graph: Graph,
    schemas: OperatorSchemas,
    denotations: Mapping[str, tuple[str, ...]] | None = None,
) -> int:
    """A ``Graph`` with its bodies; a node's index is its position.

    Args:
        builder: takes it.
        graph: in topological order, all types known.
        schemas: of its operators.
        denotations: input → denotation of each dimension.

    Raises:
        Fail: the format has no form for something in it.
    """
    words = denotations or {}
    nodes = [
        write_node(builder, node, index, schemas.of(node), lambda body: write_graph(builder, body, schemas))
        for index, node in enumerate(graph.nodes)
    ]
    dense = [
        write_tensor(builder, tensor, name)
        for name, tensor in graph.initializers.items()
        if not isinstance(tensor, DensifiedTensor)
    ]
    sparse = [
        write_sparse_tensor(builder, tensor.sparse, name)
        for name, tensor in graph.initializers.items()
        if isinstance(tensor, DensifiedTensor)
    ]
    values = [write_value(builder, value, words.get(value.name, ())) for value in _values(graph)]
    fields = (
        offset(GraphSlot.INITIALIZERS, builder.references(dense)),
        offset(GraphSlot.NODE_ARGS, builder.references(values)),
        offset(GraphSlot.NODES, builder.references(nodes)),
        u32(GraphSlot.MAX_NODE_INDEX, len(nodes)),
        offset(GraphSlot.NODE_EDGES, write_edges(builder, graph)),
        offset(GraphSlot.INPUTS, builder.texts([argument.name for argument in graph.inputs])),
        offset(GraphSlot.OUTPUTS, builder.texts([argument.name for argument in graph.outputs])),
        offset(GraphSlot.SPARSE_INITIALIZERS, builder.references(sparse)),
        offset(GraphSlot.RUNTIME_OPTIMIZATIONS, write_runtime_optimizations(builder, graph)),
    )
    return builder.table(GraphSlot, *fields)


def _values(graph: Graph) -> list[NodeArg]:
    """Every value that the graph names, outer ones and the omitted one included."""
    declared = {argument.name: argument for argument in (*graph.outputs, *graph.inputs)}
    used = (name for node in graph.nodes for name in (*node.inputs, *node.implicit_inputs, *node.outputs))
    return [
        _value(graph, name, declared.get(name), graph.initializers.get(name))
        for name in dict.fromkeys((*declared, *graph.initializers, *used))
    ]


def _value(graph: Graph, name: str, declared: NodeArg | None, tensor: Tensor | None) -> NodeArg:
    if declared is not None and declared.type is not None and declared.shape is not None:
        return declared
    if tensor is not None:
        return NodeArg(name, tensor_type(tensor.element_type), tuple(tensor.shape))
    known = graph.node_arg(name)
    return known if known.type is not None or declared is None else declared
