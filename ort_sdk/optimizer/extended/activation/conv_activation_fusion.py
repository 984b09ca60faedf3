"""Convolution and the activation after it as one node."""

from __future__ import annotations

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

from .activations import CONV_ACTIVATIONS, Activation, activation_of

__all__ = ["ConvActivationFusion", "ConvAddActivationFusion"]


def _attributes(conv: Node, activation: Activation) -> dict[str, object]:
    parameters = list(activation.parameters.values())
    given = {"activation_params": parameters} if parameters else {}
    return {**conv.attributes, "activation": activation.name, **given}


class ConvActivationFusion(FusionPass):
    """Conv → activation becomes ``com.microsoft`` FusedConv (ORT's ``ConvActivationFusion``)."""

    name = "ConvActivationFusion"
    anchors = ("Conv",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        reader = matcher.reader(node.outputs[0], *CONV_ACTIVATIONS)
        activation = activation_of(matcher, reader) if reader is not None else None
        if reader is None or activation is None or reader.inputs[0] != node.outputs[0]:
            return None
        return matcher.fuse(Match(reader, node), "FusedConv", node.inputs, _attributes(node, activation))


class ConvAddActivationFusion(FusionPass):
    """Conv → Add of a tensor of its output's shape → activation becomes FusedConv with input Z."""

    name = "ConvAddActivationFusion"
    anchors = ("Conv",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        made = node.outputs[0]
        add = matcher.reader(made, "Add")
        reader = matcher.reader(add.outputs[0], *CONV_ACTIVATIONS) if add is not None else None
        activation = activation_of(matcher, reader) if reader is not None else None
        if add is None or reader is None or activation is None or reader.inputs[0] != add.outputs[0]:
            return None
        residual = add.inputs[1] if add.inputs[0] == made else add.inputs[0]
        if residual == made or not matcher.has_same_shape(made, residual):
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        inputs = [*node.inputs[:2], bias, residual]
        return matcher.fuse(Match(reader, add, node), "FusedConv", inputs, _attributes(node, activation))
