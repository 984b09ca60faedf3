"""Function bodies by node: the model's own, and those by which ONNX defines operators (``functions``)."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk.graph import Function, Graph, Model, Node
from ort_sdk.graph.operator_schemas import is_newer_than_table

__all__ = ["FunctionLookup", "function_lookup"]

FunctionLookup = Callable[[Node, Graph], "Function | None"]
"""Gives the body an operator is defined by, for a node in a graph; None if it has none."""


def function_lookup(model: Model) -> FunctionLookup:
    """Finds the body of a node's operator: a function of the model first, then ONNX's definition."""

    def find(node: Node, graph: Graph) -> Function | None:
        own = model.functions.get((node.domain, node.op_type, node.overload))
        if own is not None:
            return own
        if (node.domain, node.op_type) == ("ai.onnx.preview.training", "Gradient"):
            from ort_sdk.graph.gradient import gradient_function

            return gradient_function(node, graph, model.opset_imports)
        if is_newer_than_table(node):
            return None
        from .functions import operator_function

        return operator_function(node, graph, model.opset_imports.get(node.domain, 0))

    return find
