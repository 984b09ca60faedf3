"""Reshapes whose target is put together from sizes, as exporters of dynamic models write them."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import Shape
from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.editing import add_constant, set_inputs
from ort_sdk.optimizer.matching import nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ReshapeTargetFusion"]

_SHAPE_READERS = frozenset({"Shape", "Size"})


class ReshapeTargetFusion:
    """A Reshape to a shape of sizes that are numbers or the input's own gets a constant target, with 0 for the latter.

    What ONNX Runtime's ``ReshapeFusion`` finds by patterns of Shape, Gather and Concat follows from shape inference here. What
    made the target is unread then. A target that a user gives stays: it may be wrong.
    """

    name = "ReshapeTargetFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace the targets in one graph."""
        changed = False
        for node in nodes_of(graph, "Reshape"):
            target = _target(node, graph)
            if target is not None:
                name = add_constant(graph, f"{node.outputs[0]}_shape", ArrayTensor(np.array(target, np.int64)))
                set_inputs(graph, node, [node.inputs[0], name])
                changed = True
        return changed


def _target(node: Node, graph: Graph) -> list[int] | None:
    """Sizes of a Reshape's result: numbers, 0 for one of the input, -1 for one that is left."""
    if node.since_version < 5 or node.attributes.get("allowzero", 0) or graph.constant(node.inputs[1]) is not None:
        return None
    before, after = (graph.node_arg(name).shape for name in (node.inputs[0], node.outputs[0]))
    if before is None or after is None or 0 in after or not _follows_from_shapes(node.inputs[1], graph):
        return None
    target = [_size(axis, before, after) for axis in range(len(after))]
    return target if target.count(-1) <= 1 and 0 not in before else None


def _follows_from_shapes(name: str, graph: Graph) -> bool:
    """Whether a value is computed of shapes and constants alone."""
    seen, waiting = {name}, [name]
    while waiting:
        value = waiting.pop()
        producer = graph.producer(value)
        if producer is None:
            if graph.constant(value) is None:
                return False
        elif producer.op_type not in _SHAPE_READERS:
            sources = {source for source in producer.inputs if source} - seen
            seen |= sources
            waiting.extend(sources)
    return True


def _size(axis: int, before: Shape, after: Shape) -> int:
    size = after[axis]
    if isinstance(size, int):
        return size
    return 0 if size is not None and axis < len(before) and before[axis] == size else -1
