"""Transposed convolutions of stride 1: a convolution with flipped taps."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, private_array
from ort_sdk.graph.editing import add_constant, replace_nodes
from ort_sdk.optimizer.matching import constant_input, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["ConvTransposeElimination"]

_FLOATS = frozenset({TensorElementType.FLOAT, TensorElementType.DOUBLE, TensorElementType.FLOAT16})


class ConvTransposeElimination:
    """ConvTranspose of strides 1 with a constant weight as Conv, which providers compute faster and fuse with its neighbours."""

    name = "ConvTransposeElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace every such node."""
        changed = False
        for node in nodes_of(graph, "ConvTranspose"):
            weight = constant_input(graph, node, 1)
            pads = None if weight is None or weight.element_type not in _FLOATS else _pads(node, weight)
            if weight is None or pads is None or not all(weight.shape):
                continue
            convolution = _convolution(node, weight, pads)
            if context.is_as_preferred(convolution, [node], graph):
                flipped = _flipped(weight, int(node.attributes.get("group", 1)))
                convolution.inputs[1] = add_constant(graph, f"{node.outputs[0]}/weight", flipped)
                replace_nodes(graph, [node], [convolution])
                changed = True
        return changed


def _pads(node: Node, weight: Tensor) -> list[int] | None:
    """The convolution's pads; None if there is no such convolution."""
    given, rank = node.attributes, len(weight.shape) - 2
    if rank < 1 or given.get("output_shape") or given.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return None
    if any(step != 1 for step in given.get("strides") or ()) or any(given.get("output_padding") or ()):
        return None
    own = (given.get("pads") if given.get("auto_pad", "NOTSET") == "NOTSET" else None) or [0] * 2 * rank
    dilations = given.get("dilations") or [1] * rank
    reach = [step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
    pads = [most - pad for most, pad in zip((*reach, *reach), own, strict=True)]
    return pads if min(pads) >= 0 else None


def _convolution(node: Node, weight: Tensor, pads: list[int]) -> Node:
    """The convolution, with the weight as it is."""
    attributes = {name: value for name, value in node.attributes.items() if name in {"dilations", "group"}}
    attributes |= {"kernel_shape": list(weight.shape[2:]), "pads": pads}
    return Node("Conv", list(node.inputs), list(node.outputs), attributes, name=node.name, since_version=node.since_version)


def _flipped(weight: Tensor, groups: int) -> Tensor:
    """The weight (C, M / groups, *kernel) as (M, C / groups, *kernel), its taps flipped; computed when it is read."""
    inputs, outputs, *kernel = weight.shape
    shape = (outputs * groups, inputs // groups, *kernel)

    def compute(*_sources: Tensor) -> HostArray:
        by_group = private_array(weight).reshape(groups, inputs // groups, outputs, *kernel)
        flipped: HostArray = np.flip(by_group.swapaxes(1, 2), tuple(range(3, by_group.ndim))).reshape(shape)
        return flipped

    return DerivedTensor(f"flipped taps of {groups} groups", weight.element_type, shape, [weight], compute)
