"""Shapes of all values, which other passes and kernels' predicates read."""

from __future__ import annotations

from ort_sdk.graph import Graph
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ShapeInference"]


class ShapeInference:
    """Fills in shapes, as ONNX Runtime does when it resolves a graph. Changes no node."""

    name = "ShapeInference"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Infer the main graph, its bodies with it."""
        if graph.parent is None:
            infer_shapes(graph)
        return False
