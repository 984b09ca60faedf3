"""Pairs of elementwise operators that one operator does."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, replace_nodes, set_inputs, single_consumer
from ort_sdk.optimizer.matching import constant_input, constant_scalar, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DivMulFusion", "FuseReluClip", "NotWhereFusion", "PreShapeNodeElimination"]

_FLOATS = frozenset({
    TensorElementType.FLOAT,
    TensorElementType.DOUBLE,
    TensorElementType.FLOAT16,
    TensorElementType.BFLOAT16,
})  # fmt: skip


class DivMulFusion:
    """ORT's ``DivMulFusion``: (1 / x) * y → y / x, for floating-point numbers."""

    name = "DivMulFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let the division take the factor as its dividend."""
        changed = False
        for div in nodes_of(graph, "Div"):
            mul = single_consumer(graph, div.outputs[0])
            if mul is None or mul.op_type != "Mul" or mul.domain or mul.inputs[0] == mul.inputs[1]:
                continue
            one = constant_input(graph, div, 0)
            if one is None or one.element_type not in _FLOATS or len(one.shape) > 0 or constant_scalar(graph, div, 0) != 1:
                continue
            if div.since_version < 7 or mul.since_version < 7:
                continue
            factor = mul.inputs[1] if mul.inputs[0] == div.outputs[0] else mul.inputs[0]
            inputs = [factor, div.inputs[1]]
            replace_nodes(
                graph, [div, mul], [Node("Div", inputs, list(mul.outputs), name=div.name, since_version=div.since_version)]
            )
            changed = True
        return changed


class NotWhereFusion:
    """ORT's ``NotWhereFusion``: Where of a negated condition is Where with its values exchanged."""

    name = "NotWhereFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Skip the Not; it goes if nobody else reads it."""
        changed = False
        for where in nodes_of(graph, "Where"):
            negation = graph.producer(where.inputs[0])
            if negation is not None and negation.op_type == "Not" and not negation.domain:
                set_inputs(graph, where, [negation.inputs[0], where.inputs[2], where.inputs[1]])
                changed = True
        return changed


class FuseReluClip:
    """ORT's ``FuseReluClip``: Clip from 0 or more makes a Relu before it unnecessary."""

    name = "FuseReluClip"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out such a Relu."""
        changed = False
        for relu in nodes_of(graph, "Relu"):
            clip = single_consumer(graph, relu.outputs[0])
            if clip is None or clip.op_type != "Clip" or clip.domain or clip.inputs[0] != relu.outputs[0]:
                continue
            lower = _lower_bound(clip, graph)
            if lower is not None and lower >= 0:
                changed |= bypass_node(graph, relu)
        return changed


def _lower_bound(clip: Node, graph: Graph) -> float | None:
    if is_given(clip, 1):
        return constant_scalar(graph, clip, 1)
    lower = clip.attributes.get("min")
    return None if lower is None else float(lower)


class PreShapeNodeElimination:
    """ORT's ``PreShapeNodeElimination``: a Cast does not change a shape."""

    name = "PreShapeNodeElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let Shape and Size read what is before a Cast."""
        changed = False
        for node in nodes_of(graph, "Shape", "Size"):
            cast = graph.producer(node.inputs[0])
            if cast is not None and cast.op_type == "Cast" and not cast.domain:
                set_inputs(graph, node, cast.inputs)
                changed = True
        return changed
