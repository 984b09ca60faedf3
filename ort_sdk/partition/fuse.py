"""Replacing a claimed group by one node that its provider compiles."""

from __future__ import annotations

from ort_sdk.api import FusedNode
from ort_sdk.graph import Graph, Node

__all__ = ["FUSED_DOMAIN", "fuse_group"]

FUSED_DOMAIN = "ort_sdk.fused"


def fuse_group(graph: Graph, nodes: list[Node], provider: str, name: str) -> tuple[Node, FusedNode] | None:
    """Take a group out of a graph and put one node there.

    Args:
        graph: changed in place.
        nodes: the group, all in ``graph``.
        provider: provider that will compile it.
        name: name of the new node.

    Returns:
        The new node and what the provider compiles; None if the group is not convex, that is if a value leaves it and
        comes back through another node, so that no order of execution exists.
    """
    members = {id(node) for node in nodes}
    if not _is_convex(graph, members):
        return None
    made = {output for node in nodes for output in node.outputs if output}
    reads = list(dict.fromkeys(name for node in graph.nodes if id(node) in members for name in node.reads() if name not in made))
    outside = {name for node in graph.nodes if id(node) not in members for name in node.reads()} | graph.output_names()
    leaves = [name for node in graph.nodes if id(node) in members for name in node.outputs if name in outside]
    body = _group_graph(graph, members, reads, leaves, name)
    inputs = [argument.name for argument in body.inputs]
    fused = Node(op_type=name, domain=FUSED_DOMAIN, name=name, inputs=inputs, outputs=leaves, execution_provider=provider)
    last = max(index for index, node in enumerate(graph.nodes) if id(node) in members)
    before = [node for node in graph.nodes[: last + 1] if id(node) not in members]
    graph.nodes = [*before, fused, *graph.nodes[last + 1 :]]
    graph.touch()
    graph.sort(_outer_names(graph))
    return fused, FusedNode(name=name, graph=body)


def _outer_names(graph: Graph) -> set[str]:
    names: set[str] = set()
    outer = graph.parent
    while outer is not None:
        names |= outer.values.keys() | outer.initializers.keys()
        outer = outer.parent
    return names


def _group_graph(graph: Graph, members: set[int], reads: list[str], leaves: list[str], name: str) -> Graph:
    constants = {read: tensor for read in reads if (tensor := graph.constant(read)) is not None}
    body = Graph(
        name=name,
        inputs=[graph.node_arg(read) for read in reads if read not in constants],
        outputs=[graph.node_arg(leaf) for leaf in leaves],
        initializers=constants,
    )
    body.nodes = [node.copy(body) for node in graph.nodes if id(node) in members]
    names = {*reads, *(output for node in body.nodes for output in node.outputs if output)}
    body.values = {value: graph.node_arg(value) for value in names}
    return body


def _is_convex(graph: Graph, members: set[int]) -> bool:
    tainted: set[str] = set()
    inside: set[str] = set()
    for node in graph.nodes:
        reads = node.reads()
        if id(node) in members:
            if any(name in tainted for name in reads):
                return False
            inside.update(node.outputs)
        elif any(name in inside or name in tainted for name in reads):
            tainted.update(node.outputs)
    return True
