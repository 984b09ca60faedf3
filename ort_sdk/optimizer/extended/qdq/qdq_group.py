"""An operator between DequantizeLinear and QuantizeLinear nodes."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import GraphMatcher

__all__ = ["BYTES", "QDQGroup", "Quantization", "has_same_quantization", "read_dequantizer", "read_group", "read_quantizer"]

BYTES = frozenset({TensorElementType.INT8, TensorElementType.UINT8})
SCALE_TOLERANCE = 1e-4
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantized value beside a DequantizeLinear or QuantizeLinear node; scale and zero point are constants."""

    node: Node
    value: str
    """The quantized side of the node."""
    scale: str
    zero_point: str
    """Empty if the node gives none."""
    element_type: TensorElementType | None
    axis: int | None
    """Axis along which scale and zero point go; None if they are for the whole tensor."""

    @property
    def triple(self) -> list[str]:
        """Value, scale and zero point, as most quantized operators take them."""
        return [self.value, self.scale, self.zero_point]

    def is_byte_tensor(self) -> bool:
        """Whether the value has 8-bit elements, one scale and a zero point."""
        return self.element_type in BYTES and self.axis is None and bool(self.zero_point)


@dataclass(frozen=True, slots=True)
class QDQGroup:
    """A node whose inputs are dequantized and whose output may be quantized again."""

    matcher: GraphMatcher
    node: Node
    inputs: tuple[Quantization, ...]
    output: Quantization | None

    def members(self) -> list[Node]:
        """The nodes that go when the group is replaced: dequantizers that others read too stay."""
        dequantizers = [quantization.node for quantization in self.inputs]
        return [self.node, *self.matcher.without_shared(dequantizers, self.node)]

    def is_of_bytes(self) -> bool:
        """Whether all inputs and the output are 8-bit tensors of one type with one scale each."""
        ends = (*self.inputs, self.output)
        types = {end.element_type for end in ends if end is not None}
        return len(types) == 1 and all(end is not None and end.is_byte_tensor() for end in ends)

    def keeps_parameters(self) -> bool:
        """Whether input 0 and the output are quantized alike."""
        return self.output is not None and has_same_quantization(self.matcher, self.inputs[0], self.output)

    def keeps_order(self) -> bool:
        """Whether greater elements of input 0 stand for greater numbers."""
        scale = self._number(self.inputs[0].scale)
        return self.inputs[0].axis is None and scale is not None and bool(np.all(scale > 0))

    def is_bias_scale(self, scale: str) -> bool:
        """Whether a bias has the product of the scales of inputs 0 and 1 as its scale."""
        found, first, second = (self._number(name) for name in (scale, self.inputs[0].scale, self.inputs[1].scale))
        if found is None or first is None or second is None or found.size not in {1, second.size}:
            return False
        return bool(np.allclose(found, first * second, rtol=SCALE_TOLERANCE, atol=0))

    def _number(self, name: str) -> np.ndarray | None:
        tensor = self.matcher.graph.constant(name)
        return None if tensor is None else tensor.numpy().astype(np.float64).reshape(-1)


def has_same_quantization(matcher: GraphMatcher, source: Quantization, target: Quantization) -> bool:
    """Whether two values have the same type, scale and zero point, of the whole tensor."""
    if source.element_type != target.element_type or source.axis is not None or target.axis is not None:
        return False
    read = matcher.constant
    pairs = ((source.scale, target.scale), (source.zero_point, target.zero_point))
    return all(first == second or _same(read(first), read(second)) for first, second in pairs)


def _same(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    return first is not None and second is not None and first.reshape(-1).tolist() == second.reshape(-1).tolist()


def read_group(matcher: GraphMatcher, node: Node, data_inputs: slice = _ALL) -> QDQGroup | None:
    """The group around a node.

    Args:
        matcher: the graph.
        node: the operator.
        data_inputs: which of its inputs are to be dequantized; all by default.

    Returns:
        None if one of these inputs is not.
    """
    names = node.inputs[data_inputs]
    inputs = [read_dequantizer(matcher, name) for name in names]
    found = [quantization for quantization in inputs if quantization is not None]
    if len(found) < len(names) or not found or any(node.outputs[1:]):
        return None
    return QDQGroup(matcher, node, tuple(found), read_quantizer(matcher, node.outputs[0]))


def read_dequantizer(matcher: GraphMatcher, name: str) -> Quantization | None:
    """The DequantizeLinear node that makes a value, and what it reads; None if there is none, or with parameters unknown."""
    return _quantization(matcher, matcher.maker(name, "DequantizeLinear"), is_output=False)


def read_quantizer(matcher: GraphMatcher, name: str) -> Quantization | None:
    """The QuantizeLinear node that alone reads a value, and what it makes; None if there is none, or with parameters unknown."""
    return _quantization(matcher, matcher.reader(name, "QuantizeLinear"), is_output=True)


def _quantization(matcher: GraphMatcher, node: Node | None, *, is_output: bool) -> Quantization | None:
    if node is None or node.attributes.get("block_size", 0) or node.attributes.get("precision", 0):
        return None
    value = node.outputs[0] if is_output else node.inputs[0]
    scale, zero_point = [*node.inputs[1:], "", ""][:2]
    argument = matcher.argument(scale)
    if not matcher.is_constant(scale, zero_point) or argument.element_type is not TensorElementType.FLOAT:
        return None
    is_whole = argument.shape in ((), (1,))
    axis = None if is_whole else int(node.attributes.get("axis", 1))
    return Quantization(node, value, scale, zero_point, matcher.argument(value).element_type, axis)
