"""Bodies of functions: the model's own, and those by which ONNX defines operators."""

from __future__ import annotations

from ort_sdk.graph import Function, Graph, Model, Node
from ort_sdk.graph.operator_schemas import is_newer_than_table
from ort_sdk.partition import FunctionLookup

__all__ = ["function_lookup"]


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
        from ort_sdk.loader.functions import operator_function

        return operator_function(node, graph, model.opset_imports.get(node.domain, 0))

    return find
