"""Reshapes of reshapes, and reshapes and expansions that change nothing."""

from __future__ import annotations

from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, set_inputs
from ort_sdk.optimizer.matching import integers, nodes_of, numeric_shape
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ExpandElimination", "ReshapeFusion", "UnsqueezeElimination", "given_back"]

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class ReshapeFusion:
    """ORT's ``ReshapeFusion`` in spirit: of reshapes in a row only the last counts, and one to the same shape does nothing."""

    name = "ReshapeFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Skip the earlier of two reshapes; take out those that keep the shape."""
        changed = False
        for node in nodes_of(graph, *_RESHAPES):
            if _skip_earlier(node, graph):
                changed = True
            if _keeps_shape(node, graph) and bypass_node(graph, node):
                changed = True
        return changed


def _skip_earlier(node: Node, graph: Graph) -> bool:
    """Let a Reshape to a shape that copies no dimension read what is before the reshapes in front of it."""
    if node.op_type != "Reshape" or node.since_version < 5:
        return False
    earlier = graph.producer(node.inputs[0])
    if earlier is None or earlier.op_type not in _RESHAPES or earlier.domain:
        return False
    wanted = integers(graph, node, 1, "")
    if wanted is None or 0 in wanted:
        return False
    set_inputs(graph, node, [earlier.inputs[0], *node.inputs[1:]])
    return True


def _keeps_shape(node: Node, graph: Graph) -> bool:
    """Whether input and output must have one shape: of equally many elements, at most one dimension is left open."""
    before, after = graph.node_arg(node.inputs[0]).shape, graph.node_arg(node.outputs[0]).shape
    if before is None or after is None or len(before) != len(after):
        return False
    copied = _copied_axes(node, graph)
    open_axes = [
        axis for axis, (size, new) in enumerate(zip(before, after, strict=True)) if not (isinstance(size, int) and size == new)
    ]
    undecided = [axis for axis in open_axes if axis not in copied]
    if undecided and node.op_type == "Reshape" and len(node.inputs) > 1 and integers(graph, node, 1, "shape") is None:
        return False  # what a user asks for may be impossible
    return not undecided or (len(undecided) == 1 and len(open_axes) == 1 and 0 not in before)


def _copied_axes(node: Node, graph: Graph) -> set[int]:
    """Axes that a Reshape copies by asking for 0."""
    if node.op_type != "Reshape" or node.attributes.get("allowzero", 0):
        return set()
    return {axis for axis, size in enumerate(integers(graph, node, 1, "shape") or ()) if size == 0}


class ExpandElimination:
    """ORT's ``ExpandElimination``."""

    name = "ExpandElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every Expand whose input has its output's shape already."""
        gone = [node for node in nodes_of(graph, "Expand") if _is_idle(node, graph) and bypass_node(graph, node)]
        return bool(gone)


def _is_idle(node: Node, graph: Graph) -> bool:
    before, after = (numeric_shape(graph.node_arg(name)) for name in (node.inputs[0], node.outputs[0]))
    if before is not None and before == after:
        return True
    wanted = integers(graph, node, 1, "")
    rank = graph.node_arg(node.inputs[0]).rank
    return wanted is not None and rank is not None and len(wanted) <= rank and all(size == 1 for size in wanted)


class UnsqueezeElimination:
    """Takes out Unsqueeze and Squeeze of the same axes in a row. ORT's pass of this name only folds constants."""

    name = "UnsqueezeElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let readers of the second read the first one's input."""
        changed = False
        for node in nodes_of(graph, "Squeeze", "Unsqueeze"):
            source = given_back(graph, node)
            changed |= source is not None and bypass_node(graph, node, source)
        return changed


def given_back(graph: Graph, node: Node) -> str | None:
    """What a Squeeze or Unsqueeze gives back that undoes the one before it; None for any other node."""
    first = graph.producer(node.inputs[0]) if node.inputs and not node.domain else None
    if first is None or first.domain or {first.op_type, node.op_type} != {"Squeeze", "Unsqueeze"}:
        return None
    axes = _axes(graph, node)
    return first.inputs[0] if axes and axes == _axes(graph, first) else None


def _axes(graph: Graph, node: Node) -> frozenset[int] | None:
    """Axes of a Squeeze or Unsqueeze counted from the front, of the side of the node that has them; None if not known."""
    axes = integers(graph, node, 1, "axes")
    if axes is None or min(axes, default=0) >= 0:
        return None if axes is None else frozenset(axes)
    rank = graph.node_arg(node.inputs[0] if node.op_type == "Squeeze" else node.outputs[0]).rank
    return None if rank is None else frozenset(axis % rank for axis in axes)
