"""Constants behind a DequantizeLinear node."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk.api import Tensor, TensorElementType
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import MICROSOFT, GraphMatcher
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DEQUANTIZE", "DequantizedConstant", "is_quantization_enabled", "read_constant"]

DISABLE_KEY = "session.disable_quant_qdq"
DEQUANTIZE = ("DequantizeLinear", f"{MICROSOFT}:DequantizeLinear")


class DequantizedConstant(NamedTuple):
    """A DequantizeLinear node all of whose inputs are constants; its output is no output of the graph."""

    node: Node
    weight: Tensor
    scales: Tensor
    zero_points: Tensor | None
    block_size: int
    """0 unless quantised in blocks."""
    axis: int
    """Of channels, or along which blocks are; not negative."""

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
    value, scale, zero_point = [*node.inputs, ""][:3]
    weight, scales = matcher.graph.constant(value), matcher.graph.constant(scale)
    zero_points = matcher.graph.constant(zero_point) if zero_point else None
    if weight is None or scales is None or (zero_point and zero_points is None) or matcher.graph.is_output(node.outputs[0]):
        return None
    output_type = TensorElementType(node.attributes.get("output_dtype", 0))
    if output_type not in {TensorElementType.UNDEFINED, scales.element_type}:
        return None
    axis, rank = node.attributes.get("axis", 1), len(weight.shape)
    return DequantizedConstant(
        node,
        weight,
        scales,
        zero_points,
        node.attributes.get("block_size", 0),
        axis + rank if axis < 0 else axis,
    )
