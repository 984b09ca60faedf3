"""Gelu from its parts: exact, approximated by tanh or by a sigmoid, and with its bias."""

from __future__ import annotations

import math

from ort_sdk.config_keys import ENABLE_GELU_APPROXIMATION
from ort_sdk.graph import Node
from ort_sdk.optimizer.extended.matmul_fusion import scaling
from ort_sdk.optimizer.pattern import MICROSOFT, FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .gelu_shape import match_gelu

__all__ = ["BiasGeluFusion", "FastGeluFusion", "GeluApproximation", "GeluFusion", "QuickGeluFusion"]

TANH_SCALE = math.sqrt(2 / math.pi)
ERF_ARGUMENT = {1: math.sqrt(0.5)}
TANH_ARGUMENT = {1: TANH_SCALE, 3: TANH_SCALE * 0.044715}
GELU, FAST_GELU, BIAS_GELU = (f"{MICROSOFT}:{name}" for name in ("Gelu", "FastGelu", "BiasGelu"))


class GeluFusion(FusionPass):
    """x * (1 + erf(x / sqrt 2)) / 2 becomes Gelu: ``com.microsoft``'s, or ONNX's from opset 20 on where only it has a kernel."""

    name = "GeluFusionL2"
    anchors = ("Erf",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        found = match_gelu(matcher, node, ERF_ARGUMENT)
        if found is None:
            return None
        x, match = found
        return matcher.fuse(match, "Gelu", [x]) or matcher.fuse(match, "Gelu", [x], domain="")


class FastGeluFusion(FusionPass):
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2, however multiplied out, becomes ``com.microsoft`` FastGelu."""

    name = "FastGeluFusion"
    anchors = ("Tanh",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        found = match_gelu(matcher, node, TANH_ARGUMENT)
        return None if found is None else matcher.fuse(found[1], "FastGelu", [found[0]])


class BiasGeluFusion(FusionPass):
    """Add of a vector → Gelu becomes BiasGelu; → FastGelu, FastGelu with a bias."""

    name = "BiasGeluFusion"
    anchors = (GELU, FAST_GELU, "Gelu")

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        add = matcher.sole_maker(node.inputs[0], "Add")
        is_approximate = node.op_type == "FastGelu" or node.attributes.get("approximate", "none") == "tanh"
        if add is None or len([name for name in node.inputs if name]) > 1:
            return None
        for data, bias in (add.inputs, reversed(add.inputs)):
            if matcher.is_vector_of(bias, data):
                return matcher.fuse(Match(node, add), "FastGelu" if is_approximate else "BiasGelu", [data, bias])
        return None


class QuickGeluFusion(FusionPass):
    """x * sigmoid(alpha x) becomes ``com.microsoft`` QuickGelu."""

    name = "QuickGeluFusion"
    anchors = ("Sigmoid",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        product = matcher.reader(node.outputs[0], "Mul")
        if product is None or product.inputs[0] == product.inputs[1]:
            return None
        x = product.inputs[1] if product.inputs[0] == node.outputs[0] else product.inputs[0]
        if x == node.inputs[0]:
            return matcher.fuse(Match(product, node), "QuickGelu", [x], {"alpha": 1.0})
        scale = matcher.maker(node.inputs[0], "Mul", "Div")
        found = scaling(matcher, scale)
        if scale is None or found is None or found[0] != x:
            return None
        return matcher.fuse(Match(product, node, scale), "QuickGelu", [x], {"alpha": found[1]})


class GeluApproximation(FusionPass):
    """Gelu and BiasGelu become FastGelu, if the config entry ``optimization.enable_gelu_approximation`` is 1."""

    name = "GeluApproximation"
    anchors = (GELU, BIAS_GELU)

    def is_enabled(self, context: TransformerContext) -> bool:
        """Only on request: results change by up to 1e-3."""
        return context.config.get(ENABLE_GELU_APPROXIMATION) == "1"

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        return matcher.fuse(Match(node), "FastGelu", node.inputs)
