"""Integer GEMMs, and the nodes that dequantize their results."""

from __future__ import annotations

from ort_sdk.api import TensorElementType
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import MICROSOFT, FusionPass, GraphMatcher, Match

__all__ = ["DynamicQuantizeMatMulFusion", "MatMulIntegerToFloatFusion"]

FLOAT = TensorElementType.FLOAT


class MatMulIntegerToFloatFusion(FusionPass):
    """MatMulInteger → Cast to float → Mul by two scales (→ Add of a vector) becomes MatMulIntegerToFloat."""

    name = "MatMulIntegerToFloatFusion"
    anchors = ("MatMulInteger",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        cast = matcher.reader(node.outputs[0], "Cast")
        scaling = matcher.reader(cast.outputs[0], "Mul") if cast is not None else None
        if cast is None or scaling is None or matcher.argument(cast.outputs[0]).element_type is not FLOAT:
            return None
        scaled = scaling.inputs[1] if scaling.inputs[0] == cast.outputs[0] else scaling.inputs[0]
        scales = matcher.sole_maker(scaled, "Mul")
        ordered = _scales_in_order(matcher, scales, node) if scales is not None else None
        if scales is None or ordered is None:
            return None
        last, bias = _biased(matcher, scaling)
        a, b, a_zero_point, b_zero_point = [*node.inputs, "", ""][:4]
        inputs = [a, b, *ordered, a_zero_point, b_zero_point, bias]
        return matcher.fuse(Match(last, scaling, scales, cast, node), "MatMulIntegerToFloat", inputs)


def _scales_in_order(matcher: GraphMatcher, scales: Node, node: Node) -> tuple[str, str] | None:
    """(scale of A, scale of B) among the factors of a Mul."""
    first, second = scales.inputs
    for a, b in ((first, second), (second, first)):
        if _is_scale_of_a(matcher, a, node) and _is_scale_of_b(matcher, b, node):
            return a, b
    return None


def _is_scale_of_a(matcher: GraphMatcher, name: str, node: Node) -> bool:
    """The scale that the quantizer of A makes, or else one number."""
    quantizer = matcher.graph.producer(node.inputs[0])
    if quantizer is not None and quantizer.op_type == "DynamicQuantizeLinear":
        return quantizer.outputs[1] == name
    return matcher.argument(name).shape in ((), (1,))


def _is_scale_of_b(matcher: GraphMatcher, name: str, node: Node) -> bool:
    """One constant number, or one for each column of a matrix."""
    if not matcher.is_constant(name):
        return False
    scale, matrix = matcher.argument(name).shape, matcher.argument(node.inputs[1]).shape
    if scale in ((), (1,)):
        return True
    return scale is not None and matrix is not None and len(scale) == 1 and len(matrix) == 2 and scale[0] == matrix[1]


def _biased(matcher: GraphMatcher, scaling: Node) -> tuple[Node, str]:
    """The node that adds a constant vector to the scaled result, and the vector; the Mul itself and nothing if there is none."""
    add = matcher.reader(scaling.outputs[0], "Add")
    if add is None:
        return scaling, ""
    bias = add.inputs[1] if add.inputs[0] == scaling.outputs[0] else add.inputs[0]
    is_bias = matcher.is_constant(bias) and matcher.is_vector_of(bias, scaling.outputs[0])
    return (add, bias) if is_bias else (scaling, "")


class DynamicQuantizeMatMulFusion(FusionPass):
    """DynamicQuantizeLinear → MatMulIntegerToFloat becomes DynamicQuantizeMatMul, if nothing else reads the quantized values."""

    name = "DynamicQuantizeMatMulFusion"
    anchors = (f"{MICROSOFT}:MatMulIntegerToFloat",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias = [*node.inputs, "", "", ""][:7]
        quantizer = matcher.maker(a, "DynamicQuantizeLinear")
        if quantizer is None or quantizer.outputs != [a, a_scale, a_zero_point] or not matcher.is_constant(b, b_scale):
            return None
        inputs = [quantizer.inputs[0], b, b_scale, b_zero_point, bias]
        return matcher.fuse(Match(node, quantizer), "DynamicQuantizeMatMul", inputs)
