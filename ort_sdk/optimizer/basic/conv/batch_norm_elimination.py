"""BatchNormalization that no convolution took up, as a product and a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor
from ort_sdk.graph.editing import add_constant, is_graph_output, replace_nodes, unused_name
from ort_sdk.optimizer.matching import constant_input, new_node, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["BatchNormElimination"]

_FIRST_VERSION = 7
"""From which on the operator says by its attributes that it does not train."""


class BatchNormElimination:
    """BatchNormalization of float32 by constant statistics as Mul and Add, which providers fuse with their neighbours."""

    name = "BatchNormElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace every such node."""
        changed = False
        for node in nodes_of(graph, "BatchNormalization"):
            sources, given = _statistics(graph, node), graph.values.get(node.inputs[0])
            if sources is None or given is None or given.shape is None or len(given.shape) < 2:
                continue
            opset, output = context.opset_imports[""], node.outputs[0]
            scaled = unused_name(graph, f"{output}/scaled")
            # The statistics stand for what will be made of them.
            scaling = new_node("Mul", [node.inputs[0], node.inputs[1]], [scaled], opset, name=node.name)
            shifting = new_node("Add", [node.inputs[0], node.inputs[2]], [output], opset, name=node.name)
            if not all(context.is_as_preferred(new, [node], graph) for new in (scaling, shifting)):
                continue
            graph.values[scaled] = replace(given, name=scaled)
            scale, shift = _constants(sources, float(node.attributes.get("epsilon", 1e-5)), len(given.shape))
            scaling.inputs[1] = add_constant(graph, f"{output}/scale", scale)
            shifting.inputs[:] = scaled, add_constant(graph, f"{output}/shift", shift)
            replace_nodes(graph, [node], [scaling, shifting])
            changed = True
        return changed


def _statistics(graph: Graph, node: Node) -> Sequence[Tensor] | None:
    """Scale, bias, mean and variance; None if they are not constant, not of float32, or more than the result is wanted."""
    if node.since_version < _FIRST_VERSION or node.attributes.get("training_mode", 0) or not node.attributes.get("spatial", 1):
        return None
    if any(name and (graph.consumers(name) or is_graph_output(graph, name)) for name in node.outputs[1:]):
        return None
    found = [constant_input(graph, node, index) for index in range(1, 5)]
    sources = [tensor for tensor in found if tensor is not None and tensor.element_type is TensorElementType.FLOAT]
    channels = {tuple(tensor.shape) for tensor in sources}
    return sources if len(sources) == len(found) and len(channels) == 1 and len(next(iter(channels))) == 1 else None


def _constants(sources: Sequence[Tensor], epsilon: float, rank: int) -> tuple[Tensor, Tensor]:
    """Factor and shift of each channel, computed when they are read."""
    shape = (*sources[0].shape, *(1,) * (rank - 2))

    def rows() -> tuple[HostArray, HostArray]:
        gamma, beta, mean, variance = (tensor.numpy().astype(np.float64) for tensor in sources)
        factor = gamma / np.sqrt(variance + epsilon)
        return factor, beta - mean * factor

    def made(row: int) -> Tensor:
        def compute(*_sources: Tensor) -> HostArray:
            return rows()[row].astype(np.float32).reshape(shape)

        title = f"{('scale', 'shift')[row]} of batch-norm({epsilon}) in {rank} axes"
        return DerivedTensor(title, TensorElementType.FLOAT, shape, list(sources), compute)

    return made(0), made(1)
