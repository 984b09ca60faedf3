"""Convolutions, transposed ones too, followed by arithmetic per output channel, folded into weight and bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, private_array
from ort_sdk.graph.editing import add_constant, is_graph_output, replace_nodes, single_consumer
from ort_sdk.optimizer.matching import constant_input, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["Affine", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion", "batch_norm_affine", "moved_bias"]

_FLOATS = frozenset({
    TensorElementType.FLOAT,
    TensorElementType.DOUBLE,
    TensorElementType.FLOAT16,
    TensorElementType.BFLOAT16,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Affine:
    """``conv(x) * scale + shift`` with one number per output channel."""

    transformation: str
    """Names the arithmetic."""
    sources: tuple[Tensor, ...]
    rows: Callable[[], tuple[HostArray | None, HostArray | None]]
    """Gives scale and shift, float64; None for 1 and 0."""
    scales: bool
    shifts: bool


_AffineRule = Callable[[Graph, Node, Node, Tensor], "Affine | None"]
"""``rule(graph, conv, reader, weight)``: what the reader does to the convolution's output, if it can be folded."""


class ConvBNFusion:
    """ORT's ``ConvBNFusion``: BatchNormalization outside training, with constant parameters of the weight's type."""

    name = "ConvBNFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Fold every such pair."""
        return _fold_all(graph, "BatchNormalization", batch_norm_affine)


class ConvMulFusion:
    """ORT's ``ConvMulFusion``: a product with a constant per channel, or a scalar."""

    name = "ConvMulFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Fold every such pair."""
        return _fold_all(graph, "Mul", lambda graph, conv, node, weight: _constant_affine(graph, conv, node, weight, "Mul"))


class ConvAddFusion:
    """ORT's ``ConvAddFusion``: a sum with a constant per channel, or a scalar."""

    name = "ConvAddFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Fold every such pair."""
        return _fold_all(graph, "Add", lambda graph, conv, node, weight: _constant_affine(graph, conv, node, weight, "Add"))


def _fold_all(graph: Graph, op_type: str, affine_of: _AffineRule) -> bool:
    changed = False
    for conv, node in _pairs(graph, op_type):
        weight = constant_input(graph, conv, 1)
        if weight is None or weight.element_type not in _FLOATS:
            continue
        if is_given(conv, 2) and constant_input(graph, conv, 2) is None:
            continue
        affine = affine_of(graph, conv, node, weight)
        if affine is not None:
            _fold(graph, conv, node, weight, affine)
            changed = True
    return changed


def _pairs(graph: Graph, op_type: str) -> Iterator[tuple[Node, Node]]:
    """Convolutions whose only reader is a node of some type."""
    for conv in (*nodes_of(graph, "Conv"), *nodes_of(graph, "ConvTranspose")):
        reader = single_consumer(graph, conv.outputs[0])
        if reader is not None and reader.op_type == op_type and not reader.domain:
            yield conv, reader


def _channels(conv: Node, weight: Tensor) -> int:
    """Output channels."""
    shape: tuple[int, ...] = tuple(weight.shape)
    return shape[0] if conv.op_type == "Conv" else shape[1] * int(conv.attributes.get("group", 1))


def batch_norm_affine(graph: Graph, conv: Node, node: Node, weight: Tensor) -> Affine | None:
    """What a BatchNormalization does to as many channels as a convolution makes.

    Args:
        graph: holds both.
        conv: the convolution.
        node: the normalization.
        weight: the convolution's; the normalization's parameters have its element type.

    Returns:
        Scale and shift; None if the node trains, or its parameters are not constants of that kind.
    """
    if node.since_version < 7 or node.attributes.get("training_mode", 0) or not node.attributes.get("spatial", 1):
        return None
    if any(name and (graph.consumers(name) or is_graph_output(graph, name)) for name in node.outputs[1:]):
        return None
    found = [constant_input(graph, node, index) for index in range(1, 5)]
    sources = tuple(tensor for tensor in found if tensor is not None)
    channels = _channels(conv, weight)
    if len(sources) < 4 or any(not _is_row(tensor, weight, channels) for tensor in sources):
        return None
    epsilon = float(node.attributes.get("epsilon", 1e-5))

    def rows() -> tuple[HostArray, HostArray]:
        gamma, beta, mean, variance = (tensor.numpy().astype(np.float64) for tensor in sources)
        scale = gamma / np.sqrt(variance + epsilon)
        return scale, beta - mean * scale

    return Affine(f"batch-norm({epsilon})", sources, rows, scales=True, shifts=True)


def _is_row(tensor: Tensor, weight: Tensor, channels: int) -> bool:
    """Whether a tensor has one number of the weight's type per output channel."""
    return tensor.element_type is weight.element_type and tuple(tensor.shape) == (channels,)


def _constant_affine(graph: Graph, conv: Node, node: Node, weight: Tensor, op_type: str) -> Affine | None:
    operand = 0 if node.inputs[1] == conv.outputs[0] else 1
    tensor = constant_input(graph, node, operand)
    if node.since_version < 7 or tensor is None or tensor.element_type is not weight.element_type:
        return None
    channels, rank = _channels(conv, weight), len(weight.shape)
    is_scalar = math.prod(tensor.shape) == 1 and len(tensor.shape) <= rank
    if not is_scalar and tuple(tensor.shape) not in {(channels, *(1,) * (rank - 2)), (1, channels, *(1,) * (rank - 2))}:
        return None
    constant, scales = tensor, op_type == "Mul"

    def rows() -> tuple[HostArray | None, HostArray | None]:
        row = np.broadcast_to(constant.numpy().reshape(-1).astype(np.float64), (channels,))
        return (row, None) if scales else (None, row)

    return Affine(op_type, (constant,), rows, scales=scales, shifts=not scales)


def _fold(graph: Graph, conv: Node, node: Node, weight: Tensor, affine: Affine) -> None:
    output = node.outputs[0]
    bias = constant_input(graph, conv, 2)
    inputs = list(conv.inputs[:2])
    if affine.scales:
        inputs[1] = add_constant(graph, f"{output}/weight", _scaled_weight(conv, weight, affine))
    if affine.shifts or bias is not None:
        inputs.append(add_constant(graph, f"{output}/bias", moved_bias(conv, weight, bias, affine)))
    folded = Node(conv.op_type, inputs, [output], dict(conv.attributes), name=conv.name, since_version=conv.since_version)
    replace_nodes(graph, [conv, node], [folded])


def _scaled_weight(conv: Node, weight: Tensor, affine: Affine) -> Tensor:
    """The weight times a number per output channel, computed when it is read."""
    dtype = weight.element_type.numpy_dtype
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    groups = 0 if conv.op_type == "Conv" else int(conv.attributes.get("group", 1))
    # (groups, input channels, output channels of a group, *kernel), where the weight begins with output channels: (1, 1, ...).
    parts = (groups, weight.shape[0] // groups, weight.shape[1]) if groups else (1, 1, weight.shape[0])

    def compute(*_sources: Tensor) -> HostArray:
        scale, _ = affine.rows()
        elements = private_array(weight).astype(wide, copy=False)
        if scale is not None:
            by_group = elements.reshape(*parts, -1)
            by_group *= scale.astype(wide).reshape(parts[0], 1, parts[2], 1)
        return elements.astype(dtype, copy=False)

    sources = [weight, *affine.sources]
    return DerivedTensor(f"weight {parts} {affine.transformation}", weight.element_type, tuple(weight.shape), sources, compute)


def moved_bias(conv: Node, weight: Tensor, bias: Tensor | None, affine: Affine) -> Tensor:
    """The bias after the arithmetic, computed when it is read.

    Args:
        conv: the convolution.
        weight: its weight, whose element type the result has.
        bias: its bias, (channels,); None for 0.
        affine: the arithmetic.
    """
    dtype, channels = weight.element_type.numpy_dtype, _channels(conv, weight)

    def compute(*_sources: Tensor) -> HostArray:
        scale, shift = affine.rows()
        row = np.zeros(channels) if bias is None else bias.numpy().astype(np.float64)
        row = row if scale is None else row * scale
        return (row if shift is None else row + shift).astype(dtype)

    sources = affine.sources if bias is None else (bias, *affine.sources)
    transformation = f"bias {affine.transformation}"
    return DerivedTensor(transformation, weight.element_type, (channels,), sources, compute)
