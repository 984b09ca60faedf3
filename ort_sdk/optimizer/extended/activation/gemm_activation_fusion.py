"""Gemm and the activation after it as one node."""

from __future__ import annotations

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match

from .activations import GEMM_ACTIVATIONS, activation_of

__all__ = ["GemmActivationFusion"]


class GemmActivationFusion(FusionPass):
    """Gemm → activation becomes ``com.microsoft`` FusedGemm (ORT's ``GemmActivationFusion``)."""

    name = "GemmActivationFusion"
    anchors = ("Gemm",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        reader = matcher.reader(node.outputs[0], *GEMM_ACTIVATIONS)
        activation = activation_of(matcher, reader) if reader is not None else None
        if reader is None or activation is None:
            return None
        parameters = {f"activation_{name}": value for name, value in activation.parameters.items()}
        attributes = {**node.attributes, "activation": activation.name, **parameters}
        return matcher.fuse(Match(reader, node), "FusedGemm", node.inputs, attributes)
