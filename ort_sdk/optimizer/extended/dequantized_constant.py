"""Constants behind a DequantizeLinear node."""

from __future__ import annotations

from ort_sdk.api import Tensor
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import MICROSOFT, GraphMatcher
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DEQUANTIZE", "DequantizedConstant", "is_quantization_enabled", "read_constant"]

DISABLE_KEY = "session.disable_quant_qdq"
DEQUANTIZE = ("DequantizeLinear", f"{MICROSOFT}:DequantizeLinear")


class DequantizedConstant:
    """A DequantizeLinear node all of whose inputs are constants; its output is no output of the graph.

    Args:
        node: the node.
        weight: what it dequantises.
        scales: its scales.
        zero_points: its zero points, if there are any.
        block_size: 0 unless quantised in blocks.
        axis: of channels, or along which blocks are; not negative.
    """

    __slots__ = ("axis", "block_size", "node", "scales", "weight", "zero_points")

    def __init__(
        self, node: Node, weight: Tensor, scales: Tensor, zero_points: Tensor | None, block_size: int, axis: int
    ) -> None:
        self.node = node
        self.weight = weight
        self.scales = scales
        self.zero_points = zero_points
        self.block_size = block_size
        self.axis = axis

    @property
    def output(self) -> str:
        """Name of the dequantised value."""
        return self.node.outputs[0]

    @property
    def zero_points_name(self) -> str:
        """Name of the zero points; empty if there are none."""
        return self.node.inputs[2] if self.zero_points is not None else ""


def is_quantization_enabled(context: TransformerContext) -> bool:
    """Whether the config leaves QDQ models to be turned into integer ones."""
    return context.config.get(DISABLE_KEY) != "1"


def read_constant(matcher: GraphMatcher, node: Node) -> DequantizedConstant | None:
    """What a DequantizeLinear node dequantises; None unless all is constant, and the result has the scales' type."""
    graph, attributes = matcher.graph, node.attributes
    value, scale, zero_point = node.inputs if len(node.inputs) > 2 else (*node.inputs, "")
    weight, scales = graph.constant(value), graph.constant(scale)
    zero_points = graph.constant(zero_point) if zero_point else None
    if weight is None or scales is None or (zero_point and zero_points is None) or graph.is_output(node.outputs[0]):
        return None
    if attributes.get("output_dtype", 0) not in (0, scales.element_type):
        return None
    axis = attributes.get("axis", 1)
    if axis < 0:
        axis += len(weight.shape)
    return DequantizedConstant(node, weight, scales, zero_points, attributes.get("block_size", 0), axis)
