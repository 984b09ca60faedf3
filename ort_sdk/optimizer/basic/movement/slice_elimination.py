"""Slices that take everything, and slices that take one part of a Concat again."""

from __future__ import annotations

from ort_sdk.api import Dimension, Shape
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node
from ort_sdk.optimizer.matching import integers, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ConcatSliceElimination", "EliminateSlice"]

_NO_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Range:
    """What a Slice takes of one axis, step 1."""

    axis: int
    start: int
    end: int


class EliminateSlice:
    """ORT's ``EliminateSlice``."""

    name = "EliminateSlice"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every Slice whose ranges cover their axes."""
        idle = [node for node in nodes_of(graph, "Slice") if _takes_all(node, graph)]
        gone = [node for node in idle if bypass_node(graph, node)]
        return bool(gone)


class ConcatSliceElimination:
    """Slices of a Concat that give back one of its inputs (ORT's ``ConcatSliceElimination``)."""

    name = "ConcatSliceElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let readers of such a Slice read the input of the Concat."""
        changed = False
        for node in nodes_of(graph, "Slice"):
            concat = graph.producer(node.inputs[0])
            if concat is None or concat.op_type != "Concat" or concat.domain:
                continue
            part = _part_taken(node, concat, graph)
            if part is not None and bypass_node(graph, node, part):
                changed = True
        return changed


def _ranges(node: Node, graph: Graph) -> list[_Range] | None:
    starts, ends = integers(graph, node, 1, "starts"), integers(graph, node, 2, "ends")
    shape = graph.node_arg(node.inputs[0]).shape
    if starts is None or ends is None:
        return None
    axes = integers(graph, node, 3, "axes")
    if axes is None and is_given(node, 3):
        return None
    steps = integers(graph, node, 4, "steps")
    if (is_given(node, 4) and steps is None) or any(step != 1 for step in steps or ()):
        return None
    axes = tuple(range(len(starts))) if axes is None else axes
    if min(axes, default=0) < 0:
        if not shape:
            return None
        axes = tuple(axis % len(shape) for axis in axes)
    return [_Range(*row) for row in zip(axes, starts, ends, strict=True)]


def _takes_all(node: Node, graph: Graph) -> bool:
    starts = integers(graph, node, 1, "starts")
    if starts is None or any(starts):
        return False
    ranges = _ranges(node, graph)
    shape = graph.node_arg(node.inputs[0]).shape
    return ranges is not None and all(_reaches_end(each, shape) for each in ranges)


def _reaches_end(each: _Range, shape: Shape | None) -> bool:
    size: Dimension = shape[each.axis] if shape is not None and each.axis < len(shape) else None
    return each.end >= _NO_END or (isinstance(size, int) and each.end >= size)


def _part_taken(node: Node, concat: Node, graph: Graph) -> str | None:
    ranges = _ranges(node, graph)
    shapes = [graph.node_arg(name).shape for name in concat.inputs]
    if ranges is None or len(ranges) != 1 or not shapes[0]:
        return None
    axis = concat.attributes.get("axis", 1) % len(shapes[0])
    sizes = [shape[axis] if shape is not None else None for shape in shapes]
    taken = ranges[0]
    if taken.axis != axis or taken.start < 0 or taken.end < 0:
        return None
    offset = 0
    for number, (name, size) in enumerate(zip(concat.inputs, sizes, strict=True), 1):
        if not isinstance(size, int):
            return None
        is_last = number == len(sizes)
        if size and taken.start == offset and (taken.end == offset + size or (is_last and taken.end >= offset + size)):
            return name
        offset += size
    return None
