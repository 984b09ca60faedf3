"""Changing a graph without breaking it: the moves every pass is made of.

A pass may change any graph it was given; it calls ``graph.touch()`` once after changing ``graph.nodes`` itself. The
functions here do so themselves.
"""

from __future__ import annotations

from dataclasses import replace

from .captures import implicit_inputs
from .graph import Graph
from .node import Node

__all__ = ["is_graph_output", "remove_nodes", "replace_nodes", "replace_uses", "unused_name"]


def is_graph_output(graph: Graph, name: str) -> bool:
    """Whether a value is an output of the graph, so that its name must stay."""
    return any(argument.name == name for argument in graph.outputs)


def unused_name(graph: Graph, wanted: str) -> str:
    """A value name not yet used in this graph, its bodies or the graphs around it."""
    root = graph
    while root.parent is not None:
        root = root.parent
    taken: set[str] = set()
    for inner in root.walk():
        taken |= inner.values.keys()
    name, count = wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    return name


def replace_uses(graph: Graph, old: str, new: str) -> None:
    """Make every reader of ``old`` in this graph and its bodies read ``new``.

    Outputs of the graph itself are not renamed: a pass that drops the producer of one must keep its name alive.
    """
    for node in graph.consumers(old):
        _rename_reads(node, old, new)
    graph.touch()


def _rename_reads(node: Node, old: str, new: str) -> None:
    node.inputs = [new if name == old else name for name in node.inputs]
    if old not in node.implicit_inputs:
        return
    for body in node.subgraphs.values():
        if old in body.initializers or any(argument.name == old for argument in body.inputs):
            continue
        for inner in list(body.consumers(old)):
            _rename_reads(inner, old, new)
        body.outputs = [replace(argument, name=new) if argument.name == old else argument for argument in body.outputs]
        body.touch()
    node.implicit_inputs = implicit_inputs(node)


def remove_nodes(graph: Graph, nodes: list[Node]) -> None:
    """Take nodes out. Values only they made are forgotten."""
    gone = {id(node) for node in nodes}
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    graph.touch()
    for node in nodes:
        for name in node.outputs:
            if name and graph.producer(name) is None and not is_graph_output(graph, name):
                graph.values.pop(name, None)


def replace_nodes(graph: Graph, old: list[Node], new: list[Node]) -> None:
    """Put nodes in the place of others: at the position of the last of them, where all their inputs exist.

    The new nodes make every value of the old ones that is still read, under the same names. They take over the old
    nodes' provider if those agree on one.
    """
    gone = {id(node) for node in old}
    providers = {node.execution_provider for node in old}
    if len(providers) == 1:
        provider = providers.pop()
        for node in new:
            node.execution_provider = node.execution_provider or provider
    last = max(position for position, node in enumerate(graph.nodes) if id(node) in gone)
    kept_before = [node for node in graph.nodes[: last + 1] if id(node) not in gone]
    graph.nodes = [*kept_before, *new, *graph.nodes[last + 1 :]]
    graph.touch()
    for node in old:
        for name in node.outputs:
            if name and graph.producer(name) is None and not is_graph_output(graph, name):
                graph.values.pop(name, None)
