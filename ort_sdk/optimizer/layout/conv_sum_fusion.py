"""Convolution and the addition of another tensor as one node."""

from __future__ import annotations

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

__all__ = ["ConvSumFusion"]


class ConvSumFusion(FusionPass):
    """Conv → Add of a tensor of its output's shape becomes FusedConv with input Z, as in ORT's ``NchwcTransformer``."""

    name = "ConvSumFusion"
    anchors = ("Conv",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        made = node.outputs[0]
        add = matcher.reader(made, "Add")
        if add is None:
            return None
        other = add.inputs[1] if add.inputs[0] == made else add.inputs[0]
        if other == made or not matcher.has_same_shape(made, other):
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        return matcher.fuse(Match(add, node), "FusedConv", [*node.inputs[:2], bias, other], node.attributes)
