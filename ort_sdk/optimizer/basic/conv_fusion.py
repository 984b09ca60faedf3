"""Convolutions followed by arithmetic per output channel, folded into weight and bias."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import derived_tensor, private_array
from ort_sdk.graph.editing import add_constant, is_graph_output, replace_nodes, single_consumer
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.optimizer.matching import constant_array, constant_input, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ConvAddFusion", "ConvBNFusion", "ConvMulFusion"]

_FLOATS = frozenset({
    TensorElementType.FLOAT,
    TensorElementType.DOUBLE,
    TensorElementType.FLOAT16,
    TensorElementType.BFLOAT16,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Affine:
    """``conv(x) * scale + shift`` with one number per output channel, float64; a scale of None is 1."""

    scale: HostArray | None
    shift: HostArray | None


_AffineRule = Callable[[Graph, Node, Node, Tensor], "_Affine | None"]
"""``rule(graph, conv, reader, weight)``: what the reader does to the convolution's output, if it can be folded."""


class ConvBNFusion:
    """ORT's ``ConvBNFusion``: BatchNormalization outside training, with constant parameters of the weight's type."""

    name = "ConvBNFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Fold every such pair."""
        return _fold_all(graph, "BatchNormalization", _batch_norm_affine)


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
    for conv in nodes_of(graph, "Conv"):
        reader = single_consumer(graph, conv.outputs[0])
        if reader is not None and reader.op_type == op_type and not reader.domain:
            yield conv, reader


def _batch_norm_affine(graph: Graph, _conv: Node, node: Node, weight: Tensor) -> _Affine | None:
    if node.since_version < 7 or node.attributes.get("training_mode", 0) or not node.attributes.get("spatial", 1):
        return None
    if any(name and (graph.consumers(name) or is_graph_output(graph, name)) for name in node.outputs[1:]):
        return None
    rows = []
    for index in range(1, 5):
        tensor = constant_input(graph, node, index)
        if tensor is None or tensor.element_type is not weight.element_type or tensor.shape != weight.shape[:1]:
            return None
        rows.append(tensor.numpy().astype(np.float64))
    gamma, beta, mean, variance = rows
    scale = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    return _Affine(scale, beta - mean * scale)


def _constant_affine(graph: Graph, conv: Node, node: Node, weight: Tensor, op_type: str) -> _Affine | None:
    place = 0 if node.inputs[1] == conv.outputs[0] else 1
    tensor = constant_input(graph, node, place)
    if node.since_version < 7 or tensor is None or tensor.element_type is not weight.element_type:
        return None
    channels, rank = weight.shape[0], len(weight.shape)
    if math.prod(tensor.shape) == 1 and len(tensor.shape) <= rank:
        row = np.full(channels, tensor.numpy().reshape(-1)[0], np.float64)
    elif tensor.shape in {(channels, *(1,) * (rank - 2)), (1, channels, *(1,) * (rank - 2))}:
        row = tensor.numpy().reshape(-1).astype(np.float64)
    else:
        return None
    return _Affine(row, None) if op_type == "Mul" else _Affine(None, row)


def _fold(graph: Graph, conv: Node, node: Node, weight: Tensor, affine: _Affine) -> None:
    output = node.outputs[0]
    bias = constant_array(graph, conv, 2) if is_given(conv, 2) else np.zeros(weight.shape[0])
    shifted = np.asarray(bias, dtype=np.float64)
    weight_name = conv.inputs[1]
    if affine.scale is not None:
        shifted = shifted * affine.scale
        weight_name = add_constant(graph, f"{output}/weight", _scaled(weight, affine.scale))
    if affine.shift is not None:
        shifted = shifted + affine.shift
    inputs = [conv.inputs[0], weight_name]
    if affine.shift is not None or is_given(conv, 2):
        dtype = weight.element_type.numpy_dtype
        inputs.append(add_constant(graph, f"{output}/bias", ArrayTensor(shifted.astype(dtype))))
    folded = Node("Conv", inputs, [output], dict(conv.attributes), name=conv.name, since_version=conv.since_version)
    replace_nodes(graph, [conv, node], [folded])


def _scaled(weight: Tensor, scale: HostArray) -> Tensor:
    """The weight times a number per output channel, computed when it is read."""
    dtype = weight.element_type.numpy_dtype
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    factors = scale.astype(wide).reshape(-1, *(1,) * (len(weight.shape) - 1))

    def compute() -> HostArray:
        elements = private_array(weight).astype(wide, copy=False)
        elements *= factors
        return elements.astype(dtype, copy=False)

    transformation = f"scale-channels-{hashlib.sha256(factors.tobytes()).hexdigest()}"
    return derived_tensor(transformation, weight.element_type, tuple(weight.shape), [weight], compute)
