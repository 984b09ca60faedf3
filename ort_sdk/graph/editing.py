"""Changing a graph without breaking it: the moves every pass is made of.

A pass may change any graph it was given; it calls ``graph.touch()`` once after changing ``graph.nodes`` itself. The
functions here keep the graph's tables right themselves, so that a pass may alternate queries and changes at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_sdk.api import Tensor

from .captures import implicit_inputs
from .graph import Graph
from .node import Node

__all__ = [
    "add_constant",
    "bypass_node",
    "is_graph_output",
    "refresh_captures",
    "remove_nodes",
    "rename_output",
    "replace_nodes",
    "replace_uses",
    "set_inputs",
    "single_consumer",
    "unused_name",
]


def is_graph_output(graph: Graph, name: str) -> bool:
    """Whether a value is an output of the graph, so that its name must stay."""
    return graph.is_output(name)


def unused_name(graph: Graph, wanted: str) -> str:
    """A value name not yet used in this graph, its bodies or the graphs around it."""
    if graph.parent is None and wanted not in graph.values and not graph.bodies():
        return wanted
    root = graph
    while root.parent is not None:
        root = root.parent
    scopes = list(root.walk())
    name, count = wanted, 0
    while any(name in scope.values for scope in scopes):
        count += 1
        name = f"{wanted}_{count}"
    return name


def add_constant(graph: Graph, wanted: str, tensor: Tensor) -> str:
    """Add an initializer under a name like the wanted one; returns its name."""
    name = unused_name(graph, wanted)
    graph.add_initializer(name, tensor)
    return name


def single_consumer(graph: Graph, name: str) -> Node | None:
    """The only node that reads a value and reads it as a plain input, if the value is no output of the graph."""
    readers = graph.consumers(name)
    if len(readers) != 1 or name in readers[0].implicit_inputs or is_graph_output(graph, name):
        return None
    return readers[0]


def set_inputs(graph: Graph, node: Node, inputs: Sequence[str]) -> None:
    """Give a node of the graph other inputs."""
    graph.unlink(node)
    node.inputs = list(inputs)
    graph.link(node)


def replace_uses(graph: Graph, old: str, new: str) -> None:
    """Make every reader of ``old`` in this graph and its bodies read ``new``.

    Outputs of the graph itself are not renamed: a pass that drops the producer of one must keep its name alive.
    """
    if old == new:
        return
    for node in graph.consumers(old):
        _rename_reads(node, old, new)
    graph.move_readers(old, new)


def _rename_reads(node: Node, old: str, new: str) -> None:
    # ``list.index`` keeps nodes of thousands of inputs cheap, of which passes rename one after the other.
    inputs = node.inputs
    for _ in range(inputs.count(old)):
        inputs[inputs.index(old)] = new
    if old not in node.implicit_inputs:
        return
    for body in node.subgraphs.values():
        if old in body.initializers or any(argument.name == old for argument in body.inputs):
            continue
        replace_uses(body, old, new)
        body.outputs = [replace(argument, name=new) if argument.name == old else argument for argument in body.outputs]
    node.implicit_inputs = implicit_inputs(node)


def rename_output(graph: Graph, node: Node, old: str, new: str) -> None:
    """Let a node make ``new`` instead of ``old``, and all readers follow."""
    replace_uses(graph, old, new)
    graph.unlink(node)
    node.outputs = [new if name == old else name for name in node.outputs]
    graph.link(node)
    graph.values.pop(old, None)


def bypass_node(graph: Graph, node: Node, source: str | None = None) -> bool:
    """Take out a node whose first output equals one of its inputs, if names that must stay allow.

    Args:
        graph: holds the node.
        node: none of its other outputs may be read.
        source: the value its output equals; the first input by default.

    Returns:
        Whether it is gone. It stays if its output is an output of the graph and the source cannot take that name.
    """
    source = node.inputs[0] if source is None else source
    output = node.outputs[0]
    if not is_graph_output(graph, output):
        replace_uses(graph, output, source)
        remove_nodes(graph, [node])
        return True
    producer = graph.producer(source)
    if producer is None or is_graph_output(graph, source):
        return False
    known = graph.values.get(output)
    remove_nodes(graph, [node])
    rename_output(graph, producer, source, output)
    if known is not None:
        graph.values[output] = known
    return True


def remove_nodes(graph: Graph, nodes: Sequence[Node]) -> None:
    """Take nodes out. Values only they made are forgotten."""
    if len(nodes) > 1:
        gone = set(map(id, nodes))
        graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    elif nodes:
        del graph.nodes[graph.position(nodes[0])]
    for node in nodes:
        graph.unlink(node)
    _forget_outputs(graph, nodes)


def replace_nodes(graph: Graph, old: Sequence[Node], new: Sequence[Node]) -> None:
    """Replace nodes by others: at the position of the last of them, where all their inputs exist.

    The new nodes make every value of the old ones that is still read, under the same names. They take over the old
    nodes' provider if those agree on one.
    """
    providers = {node.execution_provider for node in old}
    if len(providers) == 1:
        provider = providers.pop()
        for node in new:
            node.execution_provider = node.execution_provider or provider
    positions = sorted(graph.position(node) for node in old)
    graph.nodes[positions[-1] : positions[-1] + 1] = new
    for position in reversed(positions[:-1]):
        del graph.nodes[position]
    for node in old:
        graph.unlink(node)
    for node in new:
        graph.link(node)
    _forget_outputs(graph, old)


def _forget_outputs(graph: Graph, nodes: Sequence[Node]) -> None:
    for node in nodes:
        for name in node.outputs:
            if name not in graph.initializers and graph.producer(name) is None and not is_graph_output(graph, name):
                graph.values.pop(name, None)


def refresh_captures(graph: Graph) -> None:
    """Recompute which outer values the control-flow nodes of a graph read, after a change inside their bodies."""
    for body in [body for body in graph.walk() if body is not graph and body.parent is graph]:
        refresh_captures(body)
    for node in graph.nodes:
        if node.subgraphs:
            graph.unlink(node)
            node.implicit_inputs = implicit_inputs(node)
            graph.link(node)
