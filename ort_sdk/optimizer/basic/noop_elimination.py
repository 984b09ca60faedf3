"""Arithmetic with a neutral constant."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node
from ort_sdk.optimizer.matching import constant_input, constant_scalar, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["NoopElimination"]

_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}


class NoopElimination:
    """ORT's ``NoopElimination``: x + 0, 0 + x, x - 0, x * 1, 1 * x and x / 1, where the constant has one element."""

    name = "NoopElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out additions of 0 and multiplications by 1 that do not change shapes."""
        changed = False
        for node in nodes_of(graph, *_NEUTRAL):
            source = _unchanged_input(node, graph)
            if source is not None and bypass_node(graph, node, source):
                changed = True
        return changed


def _unchanged_input(node: Node, graph: Graph) -> str | None:
    if node.since_version < 7:
        return None
    operands = (1, 0) if node.op_type in {"Add", "Mul"} else (1,)
    for operand in operands:
        other = node.inputs[1 - operand]
        if constant_scalar(graph, node, operand) == _NEUTRAL[node.op_type] and _keeps_rank(node, operand, other, graph):
            return other
    return None


def _keeps_rank(node: Node, operand: int, other: str, graph: Graph) -> bool:
    """Whether the constant has no more axes than the other operand, so that broadcasting adds none."""
    constant = constant_input(graph, node, operand)
    rank = graph.node_arg(other).rank
    return constant is not None and (len(constant.shape) == 0 or (rank is not None and len(constant.shape) <= rank))
