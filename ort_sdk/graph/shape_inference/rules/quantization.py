"""Quantization, and operators on quantized tensors."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import broadcast, total
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("DequantizeLinear", "QuantizeLinear", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", domain="com.microsoft")
def like_first(call: NodeCall) -> list[Shape | None]:
    """Shape of the first input."""
    return [call.shape(0)]


@shape_rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: NodeCall) -> list[Shape | None]:
    """The data; scale and zero point are scalars."""
    return [call.shape(0), (), ()]


@shape_rule("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_binary(call: NodeCall) -> list[Shape | None]:
    """What the first and fourth broadcast to."""
    return [broadcast([call.shape(0), call.shape(3)])]


@shape_rule("QLinearConcat", domain="com.microsoft")
def qlinear_concat(call: NodeCall) -> list[Shape | None]:
    """Every third input from the third on."""
    shapes = call.shapes[2::3]
    axis = call.attribute("axis")
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return [None]
    axis %= len(known[0])
    return [(*known[0][:axis], total(shape[axis] for shape in known), *known[0][axis + 1 :])]
