"""Operators between DequantizeLinear and QuantizeLinear as operators on integers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import TensorElementType
from ort_sdk.graph import Node
from ort_sdk.optimizer.extended.nbits.constants import is_quantization_enabled
from ort_sdk.optimizer.pattern import MICROSOFT, FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .qdq_group import BYTES, QDQGroup, Quantization, read_group
from .qdq_moves import MOVERS, move, move_index, move_split

__all__ = ["QDQSelectorActionTransformer", "ReluQuantFusion"]


def _replace(
    group: QDQGroup, op_type: str, inputs: Sequence[str], attributes: Mapping[str, Any], domain: str = MICROSOFT
) -> bool:
    output = group.output
    match = Match(group.node, *group.members()) if output is None else Match(output.node, *group.members())
    return group.matcher.fuse(match, op_type, inputs, attributes, domain=domain)


def _parameters(output: Quantization) -> list[str]:
    return [output.scale, output.zero_point]


def _unary(attributes_of: Callable[[QDQGroup], dict[str, Any] | None]) -> Callable[[QDQGroup], bool]:
    def action(group: QDQGroup) -> bool:
        attributes = attributes_of(group)
        if group.output is None or not group.is_of_bytes() or attributes is None:
            return False
        inputs = [*group.inputs[0].triple, *_parameters(group.output)]
        return _replace(group, f"QLinear{group.node.op_type}", inputs, attributes)

    return action


def _given(group: QDQGroup) -> dict[str, Any]:
    return dict(group.node.attributes)


def _pool_attributes(group: QDQGroup) -> dict[str, Any] | None:
    attributes = _given(group)
    dilations = attributes.pop("dilations", ())
    return attributes if all(size == 1 for size in dilations) else None


def _softmax_attributes(group: QDQGroup) -> dict[str, Any]:
    opset = group.matcher.opset()
    return {"axis": group.node.attributes.get("axis", -1 if opset >= 13 else 1), "opset": opset}


def _binary(group: QDQGroup) -> bool:
    if group.output is None or not group.is_of_bytes():
        return False
    inputs = [*group.inputs[0].triple, *group.inputs[1].triple, *_parameters(group.output)]
    return _replace(group, f"QLinear{group.node.op_type}", inputs, {})


def _where(group: QDQGroup) -> bool:
    if group.output is None or not group.is_of_bytes():
        return False
    inputs = [group.node.inputs[0], *group.inputs[0].triple, *group.inputs[1].triple, *_parameters(group.output)]
    return _replace(group, "QLinearWhere", inputs, {})


def _concat(group: QDQGroup) -> bool:
    if group.output is None or not group.is_of_bytes():
        return False
    triples = [name for quantization in group.inputs for name in quantization.triple]
    return _replace(group, "QLinearConcat", [*_parameters(group.output), *triples], {"axis": group.node.attributes["axis"]})


def _is_bias(group: QDQGroup, bias: Quantization) -> bool:
    """Whether a bias is 32-bit, with zero point 0 and the scale of the sums."""
    zero_point = group.matcher.graph.constant(bias.zero_point) if bias.zero_point else None
    is_centred = zero_point is None or not np.any(zero_point.numpy())
    return bias.element_type is TensorElementType.INT32 and is_centred and group.is_bias_scale(bias.scale)


def _conv(group: QDQGroup) -> bool:
    x, weight, *biases = group.inputs
    output = group.output
    if output is None or not (x.is_byte_tensor() and output.is_byte_tensor()) or output.element_type != x.element_type:
        return False
    if weight.element_type not in BYTES or weight.axis not in (None, 0) or not weight.zero_point:
        return False
    if x.element_type is TensorElementType.INT8 and weight.element_type is not TensorElementType.INT8:
        return False
    if not all(_is_bias(group, bias) for bias in biases):
        return False
    inputs = [*x.triple, *weight.triple, *_parameters(output), *(bias.value for bias in biases)]
    return _replace(group, "QLinearConv", inputs, group.node.attributes, domain="")


def _are_factors(group: QDQGroup) -> bool:
    """Whether inputs 0 and 1 are bytes, the second constant and with one scale, or one for each of its columns."""
    a, b = group.inputs[:2]
    if not a.is_byte_tensor() or not group.matcher.is_constant(b.value):
        return False
    columns = 0 if group.node.attributes.get("transB", 0) else 1
    is_by_column = b.axis in (columns, columns - 2) and group.matcher.argument(b.value).rank == 2
    return b.is_byte_tensor() or (is_by_column and b.element_type in BYTES and bool(b.zero_point))


def _is_output_of(group: QDQGroup, factor: Quantization) -> bool:
    """Whether the result is quantized as A's type, or not at all."""
    if group.output is None:
        return group.matcher.reader(group.node.outputs[0], "QuantizeLinear") is None
    return group.output.is_byte_tensor() and group.output.element_type == factor.element_type


def _matmul(group: QDQGroup) -> bool:
    a, b = group.inputs
    if not _are_factors(group):
        return False
    output = group.output
    if not _is_output_of(group, a):
        return False
    if output is None:
        inputs = [a.value, b.value, a.scale, b.scale, a.zero_point, b.zero_point]
        return _replace(group, "MatMulIntegerToFloat", inputs, {})
    return _replace(group, "QLinearMatMul", [*a.triple, *b.triple, *_parameters(output)], {}, domain="")


def _gemm(group: QDQGroup) -> bool:
    a, b, *biases = group.inputs
    attributes, output = _given(group), group.output
    if not _are_factors(group) or not _is_output_of(group, a):
        return False
    if (biases and attributes.get("beta", 1.0) != 1.0) or attributes.get("alpha", 1.0) != 1.0:
        return False
    if not all(_is_bias(group, bias) for bias in biases):
        return False
    attributes.pop("beta", None)
    bias = biases[0].value if biases else ""
    quantized = [] if output is None else _parameters(output)
    return _replace(group, "QGemm", [*a.triple, *b.triple, bias, *quantized], attributes)


_ACTIONS: dict[str, Callable[[QDQGroup], bool]] = {
    "Add": _binary,
    "AveragePool": _unary(_pool_attributes),
    "Concat": _concat,
    "Conv": _conv,
    "Gemm": _gemm,
    "GlobalAveragePool": _unary(lambda _group: {"channels_last": 0}),
    "LeakyRelu": _unary(_given),
    "MatMul": _matmul,
    "Mul": _binary,
    "Sigmoid": _unary(_given),
    "Softmax": _unary(_softmax_attributes),
    "Where": _where,
    "ArgMax": move_index,
    **dict.fromkeys(MOVERS, move),
}
_DATA_INPUTS = {**dict.fromkeys(("ArgMax", *MOVERS), slice(0, 1)), "Where": slice(1, 3)}
"""Which inputs are numbers, where not all are."""


class QDQSelectorActionTransformer(FusionPass):
    """DequantizeLinear → operator → QuantizeLinear becomes an operator on integers; none if ``session.disable_quant_qdq`` is 1.

    Convolutions, MatMul and element-wise operators get their QLinear form; operators that move elements move quantized
    ones, if input and output are quantized alike.
    """

    name = "QDQSelectorActionTransformer"
    anchors = (*_ACTIONS, "Split")

    def is_enabled(self, context: TransformerContext) -> bool:
        """Unless the config says otherwise."""
        return is_quantization_enabled(context)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        if node.op_type == "Split":
            return move_split(matcher, node)
        group = read_group(matcher, node, _DATA_INPUTS.get(node.op_type, slice(None)))
        return group is not None and _ACTIONS[node.op_type](group)


class ReluQuantFusion(FusionPass):
    """Relu before a QuantizeLinear whose zero point is the least integer does nothing: it goes."""

    name = "ReluQuantFusion"
    anchors = ("Relu",)

    def is_enabled(self, context: TransformerContext) -> bool:
        """Unless the config says otherwise."""
        return is_quantization_enabled(context)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        quantizer = matcher.reader(node.outputs[0], "QuantizeLinear")
        zero_point = quantizer.inputs[2] if quantizer is not None and len(quantizer.inputs) > 2 else ""
        value = matcher.scalar(zero_point, node.inputs[0])
        element_type = matcher.argument(zero_point).element_type
        if quantizer is None or value is None or element_type not in BYTES or value != np.iinfo(element_type.numpy_dtype).min:
            return None
        kept = dataclasses.replace(quantizer.copy(), inputs=[node.inputs[0], *quantizer.inputs[1:]])
        return matcher.replace(Match(quantizer, node), kept)
