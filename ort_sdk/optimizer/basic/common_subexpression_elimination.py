"""Nodes that compute the same from the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ort_sdk.api import Tensor
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import is_graph_output, remove_nodes, replace_uses
from ort_sdk.graph.tensor import is_tensor
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["CommonSubexpressionElimination"]

_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
_EXCLUDED = frozenset({
    *("Bernoulli", "BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Dropout", "Multinomial", "RandomNormal"),
    *("RandomNormalLike", "RandomUniform", "RandomUniformLike", "Sampling", "BeamSearch", "GreedySearch", "WhisperBeamSearch"),
    # Passes look for a DequantizeLinear of its own in front of each quantized operator.
    *("DequantizeLinear", "QuantizeLinear"),
})  # fmt: skip
_SMALL_BYTES = 64
"""Constants up to this size are compared by content."""


class CommonSubexpressionElimination:
    """ORT's ``CommonSubexpressionElimination``: operators of known domains without bodies and without randomness."""

    name = "CommonSubexpressionElimination"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let readers of every further equal node read the first one."""
        seen: dict[Hashable, list[Node]] = {}
        gone = []
        constants: dict[str, Hashable] = {}
        known: dict[Hashable, Node | None] = {}
        """Nodes that may equal others, by what is seen without reading constants; None once another was like it."""
        has_bodies = bool(graph.bodies())
        for node in graph.nodes:
            if node.domain not in _DOMAINS or node.op_type in _EXCLUDED or not node.inputs or (has_bodies and node.subgraphs):
                continue
            look = _look(node, graph)
            other = known.setdefault(look, node)
            if other is node:
                continue
            if other is not None:
                known[look] = None
                seen.setdefault(_key(other, graph, constants), []).append(other)
            equals = seen.setdefault(_key(node, graph, constants), [])
            first = next((each for each in equals if _is_same(each, node)), None)
            if first is None:
                equals.append(node)
            elif _merge(first, node, graph):
                gone.append(node)
        remove_nodes(graph, gone)
        return bool(gone)


def _look(node: Node, graph: Graph) -> Hashable:
    """Operator, and names of the inputs that are no constants."""
    known = graph.initializers
    names = ["" if name in known else name for name in node.inputs]
    if graph.parent is not None:
        names = [name if graph.constant(name) is None else "" for name in names]
    return (node.op_type, node.domain, *names)


def _key(node: Node, graph: Graph, constants: dict[str, Hashable]) -> Hashable:
    """Equal for nodes that are equal but for attributes and outputs."""
    inputs = tuple([_input_key(name, graph, constants) for name in node.inputs])
    return (node.op_type, node.domain, node.since_version, node.execution_provider, inputs)


def _input_key(name: str, graph: Graph, constants: dict[str, Hashable]) -> Hashable:
    """The value's name, or the content of a small constant."""
    if name not in constants:
        tensor = graph.constant(name)
        constants[name] = name if tensor is None or tensor.nbytes > _SMALL_BYTES else _content(tensor) or name
    return constants[name]


def _content(tensor: Tensor) -> Hashable:
    """None for strings, whose bytes are not counted."""
    return (int(tensor.element_type), tensor.shape, tensor.packed().tobytes()) if tensor.nbytes else None


def _is_same(first: Node, second: Node) -> bool:
    """Whether attributes are equal, and the same outputs are wanted."""
    if [bool(name) for name in first.outputs] != [bool(name) for name in second.outputs]:
        return False
    mine, other = first.attributes, second.attributes
    return mine.keys() == other.keys() and all(_equal(value, other[name]) for name, value in mine.items())


def _equal(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if is_tensor(first) and is_tensor(second):
        small = max(first.nbytes, second.nbytes) <= _SMALL_BYTES
        return small and first.nbytes > 0 and _content(first) == _content(second)
    if type(first) is not type(second) or not isinstance(first, (int, float, str, list, tuple, np.number)):
        return False
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)


def _merge(first: Node, second: Node, graph: Graph) -> bool:
    """Let readers of one node's outputs read another's; refused if an output's name must stay."""
    if any(is_graph_output(graph, name) for name in second.outputs):
        return False
    for kept, name in zip(first.outputs, second.outputs, strict=True):
        if name:
            replace_uses(graph, name, kept)
    return True
