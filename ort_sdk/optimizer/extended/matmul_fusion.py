"""Scaling and transposition around a MatMul as attributes of FusedMatMul."""

from __future__ import annotations

from typing import Any

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import MICROSOFT, FusionPass, GraphMatcher, Match

__all__ = ["MatMulScaleFusion", "MatmulTransposeFusion"]

FUSED = f"{MICROSOFT}:FusedMatMul"


def scaling(matcher: GraphMatcher, node: Node | None) -> tuple[str, float] | None:
    """(value, factor) of a node that multiplies a value by, or divides it by, a constant number."""
    if node is None:
        return None
    if node.op_type == "Mul":
        return matcher.scalar_operand(node)
    divisor = matcher.scalar(node.inputs[1], node.inputs[0])
    return (node.inputs[0], 1 / divisor) if divisor else None


class MatMulScaleFusion(FusionPass):
    """Mul or Div by a constant number before or after MatMul becomes FusedMatMul's ``alpha``."""

    name = "MatMulScaleFusion"
    anchors = ("MatMul", FUSED)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        alpha = float(node.attributes.get("alpha", 1.0))
        last, inputs, members = node, list(node.inputs), [node]
        for index, name in enumerate(node.inputs):
            maker = matcher.sole_maker(name, "Mul", "Div")
            found = scaling(matcher, maker)
            if maker is not None and found is not None and node.inputs.count(name) == 1:
                inputs[index], alpha = found[0], alpha * found[1]
                members.append(maker)
        reader = matcher.reader(node.outputs[0], "Mul", "Div")
        found = scaling(matcher, reader)
        if reader is not None and found is not None and found[0] == node.outputs[0]:
            last, alpha = reader, alpha * found[1]
        if last is node and len(members) == 1:
            return None
        attributes: dict[str, Any] = {**node.attributes, "alpha": alpha}
        return matcher.fuse(Match(last, *members), "FusedMatMul", inputs, attributes)


class MatmulTransposeFusion(FusionPass):
    """Transpose of the last two axes before MatMul becomes FusedMatMul's ``transA`` or ``transB``."""

    name = "MatmulTransposeFusion"
    anchors = ("MatMul", FUSED)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        inputs, members, attributes = list(node.inputs), [node], dict(node.attributes)
        for index, (name, flag) in enumerate(zip(node.inputs, ("transA", "transB"), strict=True)):
            maker = matcher.sole_maker(name, "Transpose")
            batch_moves = attributes.get(f"transBatch{'AB'[index]}", 0)
            if maker is None or batch_moves or node.inputs.count(name) > 1 or not _swaps_last_two(matcher, maker):
                continue
            inputs[index] = maker.inputs[0]
            attributes[flag] = 1 - attributes.get(flag, 0)
            members.append(maker)
        if len(members) == 1:
            return None
        attributes.setdefault("alpha", 1.0)
        return matcher.fuse(Match(node, *members), "FusedMatMul", inputs, attributes)


def _swaps_last_two(matcher: GraphMatcher, transpose: Node) -> bool:
    permutation = transpose.attributes.get("perm")
    if permutation is None:
        return matcher.argument(transpose.inputs[0]).rank == 2
    rank = len(permutation)
    return rank >= 2 and list(permutation) == [*range(rank - 2), rank - 1, rank - 2]
