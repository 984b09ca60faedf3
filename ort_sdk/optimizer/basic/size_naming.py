"""Names for unknown sizes, so that sizes which follow from them are known to be the same."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.api import Shape
from ort_sdk.graph import Graph
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.shape_inference.infer import UNNAMED
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["SizeNaming"]


class SizeNaming:
    """Gives each unknown size of a value a name of its own, and lets it spread: fusions compare shapes by names.

    A slice of position embeddings, say, is as long as the sequence but nothing in the model says so; whatever is computed from
    it then has one unknown size throughout. Changes no node, and no shape that a user sees.
    """

    name = "SizeNaming"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Name the sizes of a main graph."""
        if graph.parent is not None:
            return False
        makers = {name for node in graph.nodes for name in node.outputs if name}
        unknown = {name: argument for name in makers if (argument := graph.values.get(name)) and None in (argument.shape or ())}
        for name, argument in unknown.items():
            graph.values[name] = replace(argument, shape=_named(name, argument.shape))
        if unknown:
            graph.is_inferred = False
            infer_shapes(graph)
        return False


def _named(name: str, shape: Shape | None) -> Shape:
    sizes = enumerate(shape or ())
    return tuple(f"{UNNAMED}{name}:{axis}" if size is None else size for axis, size in sizes)
