"""Sums of embeddings in front of a normalization as nodes of their own, which are computed like any others."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import Dimension, Shape, TensorElementType, tensor_type
from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.editing import add_constant, replace_nodes
from ort_sdk.optimizer.extended.attention.attention_inputs import NewNodes
from ort_sdk.optimizer.pattern import MICROSOFT, GraphMatcher
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["EmbedLayerNormSplit"]

SLICES_WITH_INPUTS = 10
"""Version of ONNX from which Slice takes its numbers as inputs."""
SUMS_WITH_INPUTS = 13
"""Version of ONNX from which ReduceSum takes its axes as an input."""
EPSILON = 1e-12
_PLAIN, _QUANTIZED = "EmbedLayerNormalization", "QEmbedLayerNormalization"
_OPERATORS = (_PLAIN, _QUANTIZED)
_WORDS, _POSITIONS, _SEGMENTS, _SCALE, _SHIFT = range(5)
"""What may be quantized: inputs from 2 on, whose scales are inputs from 8 on, and whose zero points are inputs from 13 on."""
_INT32, _INT64, _BOOL = map(tensor_type, (TensorElementType.INT32, TensorElementType.INT64, TensorElementType.BOOL))


class EmbedLayerNormSplit:
    """`com.microsoft` EmbedLayerNormalization becomes Gather of each table, Add, and LayerNormalization.

    The words that its mask keeps are counted by a node of their own. Of QEmbedLayerNormalization, the gathered rows are
    dequantized, not the tables.
    """

    name = "EmbedLayerNormSplit"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """See ``GraphTransformer``."""
        matcher = GraphMatcher(graph, context)
        found = [node for node in graph.nodes if node.domain == MICROSOFT and node.op_type in _OPERATORS]
        changed = [node for node in found if _Split(matcher, node).make()]
        return bool(changed)


class _Split:
    """What one node becomes.

    Args:
        matcher: of its graph.
        node: the node.
    """

    def __init__(self, matcher: GraphMatcher, node: Node) -> None:
        self._matcher, self._node = matcher, node
        self._new = NewNodes(matcher, node.execution_provider)
        self._element = matcher.argument(node.outputs[0]).element_type
        self._type = "" if self._element is None else tensor_type(self._element)
        self._is_quantized = node.op_type == _QUANTIZED

    def make(self) -> bool:
        """Put the nodes in the graph; False if the node has to stay."""
        node, matcher = self._node, self._matcher
        ids, table = (matcher.argument(name).shape for name in (node.inputs[0], node.inputs[2]))
        if ids is None or len(ids) != 2 or not table or self._element is None or matcher.opset() < SLICES_WITH_INPUTS:
            return False
        counted, total = ([*node.outputs, "", ""][index] for index in (1, 2))
        if counted and not self._input(7):
            return False
        summed = self._sum((*ids, table[-1]))
        if total:
            self._new.nodes[-1].outputs[0] = summed = total
        if counted:
            self._count(counted, ids[0])
        attributes = {"axis": -1, "epsilon": float(node.attributes.get("epsilon", EPSILON))}
        inputs = [summed, *(self._real(name, table[-1:], which) for which, name in enumerate(node.inputs[5:7], _SCALE))]
        last = matcher.new_node(node, "LayerNormalization", inputs, attributes, domain="", outputs=node.outputs[:1])
        nodes = [*self._new.nodes, *([] if last is None else [last])]
        if last is None or not all(matcher.context.has_kernel(each, matcher.graph) for each in nodes):
            return False
        replace_nodes(matcher.graph, [node], nodes)
        return True

    def _input(self, index: int) -> str:
        return self._node.inputs[index] if index < len(self._node.inputs) else ""

    def _sum(self, shape: Shape) -> str:
        """The sum of the embeddings, in the order in which ORT adds them."""
        new, positions = self._new, "" if self._is_quantized else self._input(8)
        total = self._gathered(_WORDS, self._node.inputs[0], shape)
        rows = self._gathered(_POSITIONS, positions, (None, *shape[1:])) if positions else self._first_rows(shape)
        total = new.add("Add", [total, rows], self._type, shape)
        if not self._input(1) or not self._input(4):
            return total
        return new.add("Add", [total, self._gathered(_SEGMENTS, self._input(1), shape)], self._type, shape)

    def _gathered(self, which: int, rows: str, shape: Shape) -> str:
        """Rows of a table."""
        table = self._input(2 + which)
        return self._real(self._new.add("Gather", [table, rows], self._type_of(table), shape, axis=0), shape, which)

    def _type_of(self, name: str) -> str:
        return self._matcher.argument(name).type or self._type

    def _real(self, name: str, shape: Shape, which: int) -> str:
        """A part of an input that may be quantized, as it is to be added or multiplied."""
        if not self._is_quantized:
            return name
        return self._new.add("DequantizeLinear", [name, self._input(8 + which), self._input(13 + which)], self._type, shape)

    def _first_rows(self, shape: Shape) -> str:
        """As many rows of the table of positions as there are words."""
        new, table, length = self._new, self._node.inputs[3], shape[1]
        first, second = (new.constant(f"{table}_{name}", [value]) for name, value in (("first", 0), ("second", 1)))
        if isinstance(length, int):
            last = new.constant(f"{table}_last", [length])
        else:
            whole = new.add("Shape", [self._node.inputs[0]], _INT64, (2,))
            last = new.add("Gather", [whole, second], _INT64, (1,), axis=0)
        rows = new.add("Slice", [table, first, last, first], self._type_of(table), shape[1:])
        return self._real(rows, shape[1:], _POSITIONS)

    def _count(self, name: str, batch: Dimension) -> None:
        """Words of each sample that its mask keeps."""
        new, mask, graph = self._new, self._input(7), self._matcher.graph
        shape = self._matcher.argument(mask).shape or (batch, None)
        one = add_constant(graph, f"{mask}_one", ArrayTensor(np.ones((), np.int32)))
        is_kept = new.add("Equal", [mask, one], _BOOL, shape)
        numbers = new.add("Cast", [is_kept], _INT32, shape, to=int(TensorElementType.INT32))
        if self._matcher.opset() < SUMS_WITH_INPUTS:
            new.add("ReduceSum", [numbers], _INT32, (batch,), axes=[1], keepdims=0)
        else:
            new.add("ReduceSum", [numbers, new.constant(f"{mask}_axis", [1])], _INT32, (batch,), keepdims=0)
        new.nodes[-1].outputs[0] = name
