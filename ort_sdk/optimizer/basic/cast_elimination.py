"""Casts that change nothing, and casts whose detour loses nothing."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import bypass_node, set_inputs
from ort_sdk.optimizer.matching import nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["CastChainElimination", "CastElimination"]

_Type = TensorElementType
_INTEGERS = {
    _Type.BOOL: 1,
    _Type.UINT8: 8,
    _Type.UINT16: 16,
    _Type.UINT32: 32,
    _Type.UINT64: 64,
    _Type.INT8: -8,
    _Type.INT16: -16,
    _Type.INT32: -32,
    _Type.INT64: -64,
}
"""Bits of magnitude, negative for signed types."""
_EXACT_BITS = {_Type.FLOAT16: 11, _Type.FLOAT: 24, _Type.DOUBLE: 53}
"""Widest integers a floating-point type holds exactly."""
_FLOAT_INTO = {
    _Type.FLOAT16: {_Type.FLOAT, _Type.DOUBLE},
    _Type.BFLOAT16: {_Type.FLOAT, _Type.DOUBLE},
    _Type.FLOAT: {_Type.DOUBLE},
}


class CastElimination:
    """ORT's ``CastElimination``."""

    name = "CastElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Take out every Cast (and CastLike) to the type its input has."""
        idle = [node for node in nodes_of(graph, "Cast", "CastLike") if _keeps_type(node, graph)]
        gone = [node for node in idle if bypass_node(graph, node)]
        return bool(gone)


class CastChainElimination:
    """ORT's ``CastChainElimination``, only where the first of two casts loses nothing."""

    name = "CastChainElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let a Cast of a lossless Cast read that one's input."""
        changed = False
        for node in nodes_of(graph, "Cast"):
            first = graph.producer(node.inputs[0])
            if first is not None and first.op_type == "Cast" and not first.domain and _is_detour(first, node, graph):
                set_inputs(graph, node, first.inputs)
                changed = True
        return changed


def _keeps_type(node: Node, graph: Graph) -> bool:
    source = graph.node_arg(node.inputs[0]).type
    return source is not None and source == graph.node_arg(node.outputs[0]).type


def _is_detour(first: Node, second: Node, graph: Graph) -> bool:
    source = graph.node_arg(first.inputs[0]).element_type
    between = graph.node_arg(first.outputs[0]).element_type
    target = graph.node_arg(second.outputs[0]).element_type
    if source is None or between is None or target is None:
        return False
    if source in _FLOAT_INTO:
        # Out of an integer's range, what a cast gives may depend on the type it comes from.
        return between in _FLOAT_INTO[source] and (target in _EXACT_BITS or target is _Type.BFLOAT16)
    if not _holds_integer(source, between) or target not in {*_INTEGERS, *_EXACT_BITS}:
        return False
    # Integers wrap where floating-point numbers out of range may not.
    return between in _INTEGERS or target not in _INTEGERS or _holds_integer(source, target)


def _holds_integer(source: TensorElementType, target: TensorElementType) -> bool:
    """Whether every value of an integer type survives a cast to another type."""
    if source not in _INTEGERS:
        return False
    bits = _INTEGERS[source]
    if target in _EXACT_BITS:
        return abs(bits) <= _EXACT_BITS[target] and target is not _Type.FLOAT16
    wider = _INTEGERS.get(target, 0)
    if bits < 0:
        return wider < 0 and wider <= bits
    return wider >= bits if wider > 0 else -wider > bits
