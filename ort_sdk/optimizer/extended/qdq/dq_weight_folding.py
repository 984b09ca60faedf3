"""Weights of convolutions, normalizations and recurrent layers that DequantizeLinear makes of constants, as constants."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor
from ort_sdk.graph.editing import remove_nodes
from ort_sdk.optimizer.extended.nbits.constants import DEQUANTIZE, DequantizedConstant, is_quantization_enabled, read_constant
from ort_sdk.optimizer.pattern import GraphMatcher, operator_key
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DequantizedWeightFolding"]

ARRANGING = frozenset({"BatchNormalization", "Conv", "ConvTranspose", "GRU", "LSTM", "RNN"})
"""Operators whose kernels put weights in order, in float memory of their own, or which become others, if they are constant."""
_SINGLE = frozenset({(), (1,)})
"""Shapes of one number; onnxruntime's quantizer writes both for one bias."""
_STORED = frozenset(
    {
        *(TensorElementType.INT8, TensorElementType.UINT8, TensorElementType.INT16, TensorElementType.UINT16),
        TensorElementType.INT32,
    }
)


class DequantizedWeightFolding:
    """DequantizeLinear of constants → weight or bias of convolutions, BatchNormalization, GRU, LSTM or RNN becomes a constant.

    It is computed when it is read. For nodes that no fusion made operators on integers: their kernels would get the weight anew
    in each run, and could not put it in order. Scales are float32, one for the tensor or for each of its slices along an axis.
    """

    name = "DequantizedWeightFolding"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """See the class."""
        # Fusions recorded in a model name the nodes they may still be made of.
        if not is_quantization_enabled(context) or graph.runtime_optimizations:
            return False
        folded = list(_foldable(GraphMatcher(graph, context)))
        for constant in folded:
            graph.add_initializer(constant.output, _derived(constant))
        remove_nodes(graph, [constant.node for constant in folded])
        return bool(folded)


def _foldable(matcher: GraphMatcher) -> Iterator[DequantizedConstant]:
    for node in matcher.graph.nodes:
        if node.op_type != "DequantizeLinear" or operator_key(node) not in DEQUANTIZE:
            continue
        readers = matcher.graph.consumers(node.outputs[0])
        if readers and all(_arranges(reader, node.outputs[0]) for reader in readers):
            constant = read_constant(matcher, node)
            if constant is not None and _is_plain(constant):
                yield constant


def _arranges(reader: Node, name: str) -> bool:
    is_first = bool(reader.inputs) and reader.inputs[0] == name
    return reader.op_type in ARRANGING and not reader.domain and not is_first and name not in reader.implicit_inputs


def _is_plain(constant: DequantizedConstant) -> bool:
    """Whether there is one scale, or one for each slice along the axis, and as many zero points."""
    shape, scales = tuple(constant.weight.shape), tuple(constant.scales.shape)
    types_fit = constant.weight.element_type in _STORED and constant.scales.element_type is TensorElementType.FLOAT
    is_one = scales in _SINGLE
    is_along = constant.axis < len(shape) and scales == (shape[constant.axis],)
    return types_fit and not constant.block_size and (is_one or is_along) and _fits(constant.zero_points, scales)


def _fits(zero_points: Tensor | None, scales: tuple[int, ...]) -> bool:
    shape = scales if zero_points is None else tuple(zero_points.shape)
    return shape == scales or {shape, scales} == _SINGLE


def _derived(constant: DequantizedConstant) -> DerivedTensor:
    sources = [constant.weight, constant.scales, *([] if constant.zero_points is None else [constant.zero_points])]
    axis = constant.axis if constant.scales.shape else 0
    compute = functools.partial(_dequantized, axis)
    return DerivedTensor(f"DequantizeLinear {axis}", TensorElementType.FLOAT, tuple(constant.weight.shape), sources, compute)


def _dequantized(axis: int, weight: Tensor, scales: Tensor, zero_points: Tensor | None = None) -> HostArray:
    """(weight - zero point) * scale, as DequantizeLinear rounds it."""
    steps = weight.numpy()
    sizes = [1] * steps.ndim
    if scales.numpy().size > 1:
        sizes[axis] = -1
    if zero_points is not None:
        steps = steps.astype(np.int32) - zero_points.numpy().astype(np.int32).reshape(sizes)
    result: HostArray = steps.astype(np.float32) * scales.numpy().reshape(sizes)
    return result
