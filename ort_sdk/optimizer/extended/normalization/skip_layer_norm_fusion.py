"""The sum before a layer normalization as part of it."""

from __future__ import annotations

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

__all__ = ["BiasSkipLayerNormFusion", "SkipLayerNormFusion"]

FUSED = {"LayerNormalization": "SkipLayerNormalization", "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization"}


class SkipLayerNormFusion(FusionPass):
    """Add of two tensors of one shape → (Simplified)LayerNormalization becomes its ``com.microsoft`` Skip form.

    A sum that is read elsewhere too is the new node's last output.
    """

    name = "SkipLayerNormFusion"
    anchors = tuple(FUSED)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        add = matcher.maker(node.inputs[0], "Add")
        if add is None or any(node.outputs[1:]) or not _is_over_last_axis(matcher, node):
            return None
        first, second = add.inputs
        names = {*add.inputs, *(name for name in node.inputs[1:] if name), add.outputs[0], node.outputs[0]}
        if not matcher.has_same_shape(first, second) or len({matcher.argument(name).type for name in names}) != 1:
            return None
        total = add.outputs[0]
        is_shared = matcher.reader(total, node.op_type) is None
        outputs = [node.outputs[0], "", "", total] if is_shared else [node.outputs[0]]
        inputs = [first, second, *node.inputs[1:]]
        attributes = {"epsilon": float(node.attributes.get("epsilon", 1e-5))}
        return matcher.fuse(Match(node, add), FUSED[node.op_type], inputs, attributes, outputs=outputs)


def _is_over_last_axis(matcher: GraphMatcher, node: Node) -> bool:
    """Whether a normalization is over the last axis of a 2- or 3-dimensional tensor, with constant vectors."""
    rank = matcher.argument(node.inputs[0]).rank
    if rank not in (2, 3) or node.attributes.get("axis", -1) not in (-1, rank - 1) or node.attributes.get("stash_type", 1) != 1:
        return False
    parameters = [name for name in node.inputs[1:] if name]
    return matcher.is_constant(*parameters) and all(matcher.is_vector_of(name, node.inputs[0]) for name in parameters)


class BiasSkipLayerNormFusion(FusionPass):
    """Add of a constant vector before Skip(Simplified)LayerNormalization becomes its ``bias``."""

    name = "BiasSkipLayerNormFusion"
    anchors = tuple(f"com.microsoft:{name}" for name in FUSED.values())

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        position = 4 if node.op_type == "SkipLayerNormalization" else 3
        if len(node.inputs) > position:
            return None
        for index in (0, 1):
            add = matcher.sole_maker(node.inputs[index], "Add")
            found = _vector_operand(matcher, add) if add is not None else None
            if add is not None and found is not None:
                inputs = [*node.inputs, *[""] * (position - len(node.inputs)), found[1]]
                inputs[index] = found[0]
                return matcher.fuse(Match(node, add), node.op_type, inputs, node.attributes)
        return None


def _vector_operand(matcher: GraphMatcher, add: Node) -> tuple[str, str] | None:
    """(data, vector) of a sum whose one operand is a constant vector along the data's last axis."""
    first, second = add.inputs
    for data, vector in ((first, second), (second, first)):
        if matcher.is_constant(vector) and matcher.is_vector_of(vector, data) and (matcher.argument(data).rank or 0) > 1:
            return data, vector
    return None
