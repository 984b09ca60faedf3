"""Plans which values of a placed graph are float though the model has them in float16 or bfloat16."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from ort_sdk.api import HalfSupport, KernelCreateInfo
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.type_strings import resolve_type_strings

from .insert_cast import NARROW

__all__ = ["FloatPlan"]

MOST_FLOAT_BYTES = 1 << 17
"""Of a constant in float: matrices stay as they are, so that memory does not have them twice as large."""
ARRANGING = frozenset({"Conv", "ConvTranspose", "FusedConv", "GRU", "LSTM", "RNN"})
"""Operators whose kernels put their weights in order, in float memory of their own, whatever the size."""
GEMMS = frozenset({"FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gemm", "MatMul", "TransposeMatMul"})
"""Operators whose input 1 may be a matrix that stays as it is, all else being float."""
CACHES = {("com.microsoft", "GroupQueryAttention"): ((3, 4), (1, 2)), ("", "Attention"): ((4, 5), (1, 2))}
"""Operators with caches of float16 that stay as they are: their inputs, and the outputs that they become. They are as long as a
text, are read and written where they are, and may be one buffer of the caller's."""
HALF = "tensor(float16)"


class FloatPlan:
    """The values that nodes which compute in float hand to others that do, straight or through nodes that move elements.

    A node that moves elements takes part if all it moves is float then, or one element, or a constant that is not large, which
    it is given in float: it shall not make a large value float that nobody computed.

    Args:
        graph: placed, in topological order; not changed.
        kernels: ``id(node)`` → its kernel.
        can_round: whether a provider can round float to a type.
    """

    def __init__(self, graph: Graph, kernels: Mapping[int, KernelCreateInfo], can_round: Callable[[str, str], bool]) -> None:
        self._graph = graph
        self._kernels = kernels
        self._can_round = can_round
        self._producers = {name: node for node in graph.nodes for name in node.outputs if name}
        self._possible: set[str] = set()
        for node in graph.nodes:
            self._possible.update(self._made(node))
        self._wanted: set[str] = set()
        self._movers: set[int] = set()
        """``id(node)`` of those that move elements of values that are to be float."""
        for node in reversed(graph.nodes):
            self._want(node)

    def kept(self) -> dict[str, Node]:
        """Value → the node that makes it, for those that are to be float, in order."""
        return {name: node for name, node in self._producers.items() if name in self._wanted}

    def takes_float(self, node: Node, index: int) -> bool:
        """Whether a node can be given an input in float."""
        name = node.inputs[index]
        if name not in self._wanted or self._is_cache(node, index) or not self._is_neighbour(node, index):
            return False
        if self._support(node) is HalfSupport.WIDENED:
            return True
        outputs = self.half_outputs(node)
        return not outputs or not self._wanted.isdisjoint(outputs)

    def is_given_float(self, node: Node) -> bool:
        """Whether a node can be given and make all in float, with no large constant made so for it.

        It computes in float, or moves elements of which some are kept so.
        """
        if id(node) in self._movers:
            return any(map(self._is_half, node.inputs))
        inputs, outputs = list(self.half_inputs(node)), self.half_outputs(node)
        if self._support(node) is not HalfSupport.WIDENED or not (inputs or outputs) or not self._possible.issuperset(outputs):
            return False
        if len(inputs) != sum(self._is_half(name) and not self._is_cache(node, index) for index, name in enumerate(node.inputs)):
            return False
        return node.op_type in ARRANGING or not any(self._is_large(node.inputs[index]) for index in self.widened_inputs(node))

    def widened_inputs(self, node: Node) -> Iterator[int]:
        """Indices of the inputs that are to be float.

        They are the ``half_inputs``, but for the B of a GEMM that stays as it is. What moves elements takes all in one
        type, and so what it reads on the host, too.
        """
        if id(node) in self._movers:
            yield from (index for index, name in enumerate(node.inputs) if self._is_half(name))
            return
        for index in self.half_inputs(node):
            if node.op_type not in GEMMS or index != 1 or not self._is_large(node.inputs[index]):
                yield index

    def _is_large(self, name: str) -> bool:
        tensor = self._graph.constant(name)
        return tensor is not None and 2 * tensor.nbytes > MOST_FLOAT_BYTES

    def half_outputs(self, node: Node) -> list[str]:
        """The outputs that are not float, but for caches that stay as they are."""
        return [name for index, name in enumerate(node.outputs) if self._is_half(name) and not self._is_cache_made(node, index)]

    def half_inputs(self, node: Node) -> Iterator[int]:
        """Indices of the inputs that are not float and are constants, or read where the node computes; not of caches."""
        kernel_def = self._kernels[id(node)].kernel_def
        for index, name in enumerate(node.inputs):
            if (
                self._is_half(name)
                and not self._is_cache(node, index)
                and (not kernel_def.input_on_host(index) or self._graph.constant(name) is not None)
            ):
                yield index

    def _is_cache(self, node: Node, index: int) -> bool:
        """Whether an input is a cache that stays as it is."""
        inputs, _ = CACHES.get((node.domain, node.op_type), ((), ()))
        return index in inputs and self._graph.node_arg(node.inputs[index]).type == HALF

    def _is_cache_made(self, node: Node, index: int) -> bool:
        """The same of an output."""
        _, outputs = CACHES.get((node.domain, node.op_type), ((), ()))
        return index in outputs and bool(node.outputs[index]) and self._graph.node_arg(node.outputs[index]).type == HALF

    def _support(self, node: Node) -> HalfSupport:
        found = self._kernels.get(id(node))
        return HalfSupport.NATIVE if found is None else found.kernel_def.half_support

    def _is_half(self, name: str) -> bool:
        return bool(name) and self._graph.node_arg(name).type in NARROW

    def _is_neighbour(self, node: Node, index: int) -> bool:
        """Whether the kernel of a node knows no half type, and another of its provider makes the input."""
        producer = self._producers.get(node.inputs[index])
        return (
            producer is not None
            and producer.execution_provider == node.execution_provider
            and self._support(node) is not HalfSupport.NATIVE
            and not self._kernels[id(node)].kernel_def.input_on_host(index)
        )

    def _made(self, node: Node) -> list[str]:
        """The outputs a node could give in float."""
        support = self._support(node)
        if support is HalfSupport.NATIVE:
            return []
        if support is HalfSupport.MOVED:
            return self.half_outputs(node) if self._moves_float(node) else []
        kernel_def = self._kernels[id(node)].kernel_def
        return [
            name
            for index, name in enumerate(node.outputs)
            if self._is_half(name)
            and not self._is_cache_made(node, index)
            and not kernel_def.output_on_host(index)
            and _has_type_of(node, index, set(self.half_inputs(node)))
            and self._can_round(node.execution_provider, self._graph.node_arg(name).type or "")
        ]

    def _moves_float(self, node: Node) -> bool:
        inputs = list(self.half_inputs(node))
        possible = {index for index in inputs if node.inputs[index] in self._possible and self._is_neighbour(node, index)}
        return bool(possible) and all(index in possible or self._is_small(node.inputs[index]) for index in inputs)

    def _is_small(self, name: str) -> bool:
        shape = self._graph.node_arg(name).shape
        if self._graph.constant(name) is not None:
            return not self._is_large(name)
        return shape is not None and all(isinstance(dim, int) for dim in shape) and math.prod(shape) == 1  # type: ignore[arg-type]

    def _want(self, node: Node) -> None:
        """Note which inputs a node is better given in float; all its readers are known."""
        support = self._support(node)
        if support is HalfSupport.NATIVE:
            return
        if support is HalfSupport.MOVED:
            outputs = self.half_outputs(node)
            if self._wanted.isdisjoint(outputs):
                return
            self._wanted.update(outputs)
            self._movers.add(id(node))
        for index in self.half_inputs(node):
            if node.inputs[index] in self._possible and self._is_neighbour(node, index):
                self._wanted.add(node.inputs[index])


def _has_type_of(node: Node, output: int, inputs: set[int]) -> bool:
    """Whether an output's type is that of one of some inputs: an attribute says nothing about it then."""
    table = resolve_type_strings(node.domain, node.op_type, node.since_version) or {}
    return any(
        ("output", output) in arguments and any(("input", index) in arguments for index in inputs) for arguments in table.values()
    )
