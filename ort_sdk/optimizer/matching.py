"""What passes ask of nodes and constants."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ort_sdk.api import HostArray, NodeArg, Tensor, find_schema
from ort_sdk.graph import Graph, Node

__all__ = ["constant_array", "constant_input", "constant_scalar", "integers", "is_given", "new_node", "nodes_of", "numeric_shape"]

SMALL_ELEMENTS = 1 << 16


def nodes_of(graph: Graph, *op_types: str) -> list[Node]:
    """Nodes of ONNX operators in a graph, in order; a list that changes to the graph leave alone."""
    if len(op_types) == 1:
        only = op_types[0]
        return [node for node in graph.nodes if node.op_type == only and not node.domain]
    return [node for node in graph.nodes if node.op_type in op_types and not node.domain]


def constant_array(graph: Graph, node: Node, index: int) -> HostArray | None:
    """Elements of a constant input of moderate size; None for other inputs and omitted ones."""
    tensor = constant_input(graph, node, index)
    if tensor is None or math.prod(tensor.shape) > SMALL_ELEMENTS:
        return None
    return tensor.numpy()


def constant_input(graph: Graph, node: Node, index: int) -> Tensor | None:
    """A constant input; None for other inputs and omitted ones."""
    return graph.constant(node.inputs[index]) if index < len(node.inputs) and node.inputs[index] else None


def constant_scalar(graph: Graph, node: Node, index: int) -> float | None:
    """The value of a constant input of one element; None for other inputs, and for strings."""
    tensor = constant_input(graph, node, index)
    if tensor is None or any(size != 1 for size in tensor.shape):
        return None
    value = tensor.numpy().reshape(-1)[0]
    return None if isinstance(value, (str, bytes, np.complexfloating)) else float(value)


def integers(graph: Graph, node: Node, index: int, attribute: str) -> tuple[int, ...] | None:
    """Numbers that are a constant input, or an attribute in older versions; None if they are absent or not constant."""
    if index < len(node.inputs) and node.inputs[index]:
        array = constant_array(graph, node, index)
        return None if array is None else tuple(map(int, array.reshape(-1).tolist()))
    given = node.attributes.get(attribute)
    return None if given is None else tuple(given)


def is_given(node: Node, index: int) -> bool:
    """Whether an optional input is there."""
    return index < len(node.inputs) and node.inputs[index] != ""


def numeric_shape(argument: NodeArg) -> tuple[int, ...] | None:
    """A shape whose every dimension is a number."""
    if argument.shape is None:
        return None
    sizes = tuple(size for size in argument.shape if isinstance(size, int))
    return sizes if len(sizes) == len(argument.shape) else None


def new_node(
    op_type: str, inputs: Iterable[str], outputs: Iterable[str], opset_version: int, *, name: str = "", **attributes: object
) -> Node:
    """A node of an ONNX operator, with the since-version that is in force.

    Raises:
        ValueError: the operator does not exist at that opset version.
    """
    schema = find_schema(op_type, opset_version)
    if schema is None:
        raise ValueError(f"ai.onnx has no operator {op_type} at opset {opset_version}")
    return Node(op_type, list(inputs), list(outputs), dict(attributes), name=name, since_version=schema.since_version)
