"""What the bodies of control flow read from around them."""

from __future__ import annotations

from .graph import Graph
from .node import Node

__all__ = ["free_values", "implicit_inputs"]


def free_values(graph: Graph) -> list[str]:
    """Values that a body's nodes (nested bodies' too) and outputs read and the body does not define, in order of first use."""
    own = {argument.name for argument in graph.inputs} | graph.initializers.keys()
    own.update(name for node in graph.nodes for name in node.outputs)
    reads = (name for node in graph.nodes for name in node.reads())
    outputs = (argument.name for argument in graph.outputs)
    return [name for name in dict.fromkeys((*reads, *outputs)) if name not in own]


def implicit_inputs(node: Node) -> list[str]:
    """Values of enclosing graphs that a node's bodies read; the bodies' own nodes must have theirs computed."""
    return list(dict.fromkeys(name for body in node.subgraphs.values() for name in free_values(body)))
