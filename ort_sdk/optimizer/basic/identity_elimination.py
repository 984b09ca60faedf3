"""Nodes whose output equals their input: Identity, what joins or adds up a single input, and Dropout outside training."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, is_graph_output
from ort_sdk.optimizer.matching import constant_scalar, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["EliminateDropout", "EliminateIdentity", "EliminateSingleInput"]

_JOINING = ("Concat", "Max", "Mean", "Min", "Sum")


class EliminateIdentity:
    """ORT's ``EliminateIdentity``."""

    name = "EliminateIdentity"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every Identity except between an input or constant of the graph and one of its outputs."""
        gone = [node for node in nodes_of(graph, "Identity") if bypass_node(graph, node)]
        return bool(gone)


class EliminateSingleInput:
    """Concat, Max, Mean, Min and Sum of one input."""

    name = "EliminateSingleInput"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every such node as if it were an Identity: exporters write them for a cache that was empty at first."""
        single = [node for node in nodes_of(graph, *_JOINING) if len(node.inputs) == 1]
        gone = [node for node in single if bypass_node(graph, node)]
        return bool(gone)


class EliminateDropout:
    """ORT's ``EliminateDropout``."""

    name = "EliminateDropout"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every Dropout (of opset 7 or newer) that is not in training mode and whose mask nobody reads."""
        gone = [node for node in nodes_of(graph, "Dropout") if _is_idle(node, graph) and bypass_node(graph, node)]
        return bool(gone)


def _is_idle(node: Node, graph: Graph) -> bool:
    if node.since_version < 7 or (is_given(node, 2) and constant_scalar(graph, node, 2) != 0):
        return False
    masks = [name for name in node.outputs[1:] if name]
    return not any(graph.consumers(name) or is_graph_output(graph, name) for name in masks)
