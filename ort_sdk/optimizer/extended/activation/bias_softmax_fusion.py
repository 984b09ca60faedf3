"""The sum before a softmax as part of it."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

__all__ = ["BiasSoftmaxFusion"]


class BiasSoftmaxFusion(FusionPass):
    """Add → Softmax over the last axis becomes ``com.microsoft`` BiasSoftmax.

    The one operand is repeated along the leading axes of the other, or along axes just before the last.
    """

    name = "BiasSoftmaxFusion"
    anchors = ("Softmax",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        add = matcher.sole_maker(node.inputs[0], "Add")
        shape = matcher.argument(node.inputs[0]).shape
        if add is None or not shape or len(shape) < 2:
            return None
        axis = node.attributes.get("axis", -1 if matcher.opset() >= 13 else 1) % len(shape)
        if axis != len(shape) - 1:
            return None
        for data, bias in (add.inputs, reversed(add.inputs)):
            is_inner = _is_repeated_inside(matcher.argument(data).shape, matcher.argument(bias).shape)
            if is_inner is not None and matcher.argument(data).shape == shape:
                attributes = {"axis": axis, "is_inner_broadcast": int(is_inner)}
                return matcher.fuse(Match(node, add), "BiasSoftmax", [data, bias], attributes)
        return None


def _is_repeated_inside(data: Shape | None, bias: Shape | None) -> bool | None:
    """False if a bias is repeated along leading axes, True if along axes before the last; None for other or unknown shapes."""
    if data is None or bias is None or len(data) != len(bias) or None in data or data[-1] != bias[-1]:
        return None
    repeated = [own == 1 != other for own, other in zip(bias, data, strict=True)]
    if any(own != other and not is_repeated for own, other, is_repeated in zip(bias, data, repeated, strict=True)):
        return None
    if not any(repeated):
        return None
    # Axes that are 1 in both go with either group: only the order of the others counts.
    kept = [is_repeated for is_repeated, size in zip(repeated[:-1], data[:-1], strict=True) if size != 1]
    if kept == sorted(kept, reverse=True):
        return False
    return True if kept == sorted(kept) else None
