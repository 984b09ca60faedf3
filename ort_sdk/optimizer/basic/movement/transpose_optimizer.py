"""Transposes that cancel out or join."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, set_inputs
from ort_sdk.optimizer.matching import nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["TransposeOptimizer"]


class TransposeOptimizer:
    """The part of ORT's ``TransposeOptimizer`` that needs no cost model: transposes in a row become one or none."""

    name = "TransposeOptimizer"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Join each Transpose with the one before it; take out those that keep the order."""
        changed = False
        for node in nodes_of(graph, "Transpose"):
            first = graph.producer(node.inputs[0])
            if first is not None and first.op_type == "Transpose" and not first.domain and _join(first, node, graph):
                changed = True
            perm = _perm(node, graph)
            if perm is not None and perm == list(range(len(perm))) and bypass_node(graph, node):
                changed = True
        return changed


def _perm(node: Node, graph: Graph) -> list[int] | None:
    given = node.attributes.get("perm")
    if given:
        return list(given)
    rank = graph.node_arg(node.inputs[0]).rank
    return None if rank is None else list(range(rank - 1, -1, -1))


def _join(first: Node, second: Node, graph: Graph) -> bool:
    before, after = _perm(first, graph), _perm(second, graph)
    if before is None or after is None or len(before) != len(after):
        return False
    set_inputs(graph, second, first.inputs)
    second.attributes["perm"] = [before[axis] for axis in after]
    return True
