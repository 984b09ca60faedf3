"""Function inlining: calls replaced by the functions' nodes before any pass runs (ORT's AOT function inlining)."""

from __future__ import annotations

from collections.abc import Callable

from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader.function_lookup import function_lookup

__all__ = ["inline_model_functions"]

GRADIENT = ("ai.onnx.preview.training", "Gradient")
"""It names values of its graph in attributes, which passes do not read."""

MAX_DEPTH = 64
"""Deepest nesting of calls that is inlined."""


def inline_model_functions(model: Model, has_kernel: Callable[[Node, Graph], bool]) -> bool:
    """Replace calls of the model's own functions, and gradients, by their nodes (ORT's AOT function inlining).

    Args:
        model: its graph changes; types are filled in before and after, shapes after.
        has_kernel: calls that some provider runs as one node stay.

    Returns:
        Whether there were any.
    """
    if not model.functions and GRADIENT[0] not in model.opset_imports:
        return False
    if not _calls(model):
        return False
    from ort_sdk.graph.inline import inline_function

    find_function = function_lookup(model)
    infer_shapes(model.graph)
    prefixes = _Prefixes(model.graph)
    inlined = False
    for _ in range(MAX_DEPTH):
        calls = [(inner, node) for inner, node in _calls(model) if not has_kernel(node, inner)]
        if not calls:
            break
        for inner, node in calls:
            function = find_function(node, inner)
            if function is not None:
                inline_function(inner, node, function, prefixes.make(node))
        inlined = True
        model.graph.sort()
        infer_types(model.graph, model.schemas)
        infer_shapes(model.graph)
    return inlined


def _calls(model: Model) -> list[tuple[Graph, Node]]:
    """Calls of the model's functions and gradients, each with its graph."""
    op_types = {GRADIENT[1], *(op_type for _, op_type, _ in model.functions)}
    nodes = ((inner, node) for inner in model.graph.walk() for node in inner.nodes if node.op_type in op_types)
    return [(inner, node) for inner, node in nodes if _is_call(model, node)]


def _is_call(model: Model, node: Node) -> bool:
    return (node.domain, node.op_type, node.overload) in model.functions or (node.domain, node.op_type) == GRADIENT


class _Prefixes:
    """Makes prefixes, each ending in a slash, that start no name of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._taken: set[str] = set()
        for inner in graph.walk():
            for name in (*inner.values, *(output for node in inner.nodes for output in node.outputs)):
                parts = name.split("/")[:-1]
                self._taken.update("/".join(parts[: count + 1]) for count in range(len(parts)))

    def make(self, node: Node) -> str:
        """A prefix that says which call it is of."""
        base = f"{node.name or node.op_type}_{next(filter(None, node.outputs), '')}"
        prefix, number = base, 1
        while prefix in self._taken:
            number += 1
            prefix = f"{base}_{number}"
        self._taken.add(prefix)
        return f"{prefix}/"
