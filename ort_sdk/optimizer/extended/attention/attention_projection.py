"""The projection in front of attention as a MatMul of its own, computed like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Dimension, NodeArg, TensorElementType, find_schema, tensor_type
from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.editing import add_constant, replace_nodes, unused_name
from ort_sdk.optimizer.pattern import MICROSOFT
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["AttentionProjectionSplit"]

INPUTS_WITHOUT_AXES = 13
"""Version of ONNX from which Split, Squeeze and Unsqueeze take their numbers as an input."""
MASK_FILTER_VALUE = -10000.0
_MASK, _PAST = {"Attention": 3, "QAttention": 5}, {"Attention": 4, "QAttention": 8}
_ATTENTION_BIAS, _PAST_LENGTH = 5, 6
"""Further inputs of Attention."""
_KEPT_ATTRIBUTES = ("num_heads", "scale", "unidirectional", "mask_filter_value")


class AttentionProjectionSplit:
    """`com.microsoft` Attention and QAttention become the MatMul that projects their input, its Split, and MultiHeadAttention.

    A mask of keys, and one of the ends of keys, becomes numbers added to the scores, once for all nodes that read it.
    """

    name = "AttentionProjectionSplit"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """See ``GraphTransformer``."""
        biases: dict[tuple[Any, ...], str] = {}
        found = [node for node in graph.nodes if node.domain == MICROSOFT and node.op_type in _MASK]
        changed = [node for node in found if _Split(graph, context, node, biases).make()]
        return bool(changed)


class _Split:
    """What one node becomes.

    Args:
        graph: its graph.
        context: see ``GraphTransformer``.
        node: the node.
        biases: (mask, keys, what hidden keys get) → numbers made of it by nodes before this.
    """

    def __init__(self, graph: Graph, context: TransformerContext, node: Node, biases: dict[tuple[Any, ...], str]) -> None:
        self._graph, self._context, self._node, self._biases = graph, context, node, biases
        self._opset = context.opset_imports.get("", 1)
        self._nodes: list[Node] = []

    def make(self) -> bool:
        """Put the nodes in the graph; False if the node has to stay."""
        node, widths = self._node, self._widths()
        if widths is None or node.attributes.get("do_rotary", 0) or node.attributes.get("past_present_share_buffer", 0):
            return False
        if node.op_type == "Attention" and self._input(_PAST_LENGTH):
            return False
        attention = self._attention(widths)
        if attention is None:
            return False
        replace_nodes(self._graph, [node], self._nodes)
        return True

    def _input(self, index: int) -> str:
        return self._node.inputs[index] if index < len(self._node.inputs) else ""

    def _widths(self) -> tuple[int, ...] | None:
        """Columns of queries, keys and values; None if they are not known, or do not suit the heads."""
        shape = self._graph.node_arg(self._input(1)).shape
        rank = self._graph.node_arg(self._input(0)).rank
        if shape is None or len(shape) != 2 or not isinstance(shape[1], int) or rank != 3:
            return None
        widths = tuple(self._node.attributes.get("qkv_hidden_sizes") or (shape[1] // 3,) * 3)
        heads = self._node.attributes.get("num_heads", 0)
        fits = len(widths) == 3 and sum(widths) == shape[1] and widths[0] == widths[1]
        return widths if fits and heads > 0 and not any(width % heads for width in widths) else None

    def _attention(self, widths: Sequence[int]) -> Node | None:
        node, graph = self._node, self._graph
        wants_present = len(node.outputs) > 1 and bool(node.outputs[1])
        past, bias = self._input(_PAST[node.op_type]), self._input(2) if node.op_type == "Attention" else ""
        result = graph.node_arg(node.outputs[0]).type or graph.node_arg(self._input(0)).type or ""
        added = self._input(_ATTENTION_BIAS) if node.op_type == "Attention" else ""
        parts = self._projected(widths, result)
        if parts is None:
            return None
        mask, added = self._mask(added)
        caches = self._past(past) if past else ["", ""]
        present = [self._name(f"{node.outputs[1]}_{part}", result) for part in ("key", "value")] if wants_present else []
        inputs = [*parts, bias, mask, added, *caches]
        while not inputs[-1]:
            inputs.pop()
        attributes = {name: node.attributes[name] for name in _KEPT_ATTRIBUTES if name in node.attributes}
        made = self._add("MultiHeadAttention", inputs, [node.outputs[0], *present], domain=MICROSOFT, **attributes)
        if present:
            self._stack(present, node.outputs[1], result)
        return made if self._context.has_kernel(made, graph) else None

    def _projected(self, widths: Sequence[int], result: str) -> list[str] | None:
        """Queries, keys and values; None if no kernel computes the MatMul."""
        node = self._node
        x, weight = node.inputs[:2]
        shape = (*(self._graph.node_arg(x).shape or (None, None))[:2], sum(widths))
        projected = self._name(f"{node.outputs[0]}_projected", result, shape)
        if node.op_type == "Attention":
            matmul = self._add("MatMul", [x, weight], [projected])
        else:
            inputs = [x, weight, self._input(3), self._input(4), self._input(6), self._input(7), self._input(2)]
            matmul = self._add("MatMulIntegerToFloat", inputs, [projected], domain=MICROSOFT)
        if not self._context.has_kernel(matmul, self._graph):
            return None
        names = ["query", "key", "value"]
        parts = [
            self._name(f"{projected}_{name}", result, (*shape[:2], width)) for name, width in zip(names, widths, strict=True)
        ]
        self._moved("Split", [projected], parts, list(widths), "split", axis=2)
        return parts

    def _past(self, past: str) -> list[str]:
        """Keys and values of a stack of both."""
        known = self._graph.node_arg(past)
        shape = known.shape or (None,) * 5
        split_parts = [self._name(f"{past}_{part}_part", known.type or "", (1, *shape[1:])) for part in ("key", "value")]
        self._moved("Split", [past], split_parts, [1, 1], "split", axis=0)
        parts = [self._name(f"{past}_{part}", known.type or "", shape[1:]) for part in ("key", "value")]
        for split_part, part in zip(split_parts, parts, strict=True):
            self._moved("Squeeze", [split_part], [part], [0], "axes")
        return parts

    def _stack(self, parts: Sequence[str], target: str, result: str) -> None:
        stacked = [self._name(f"{part}_stacked", result) for part in parts]
        for part, name in zip(parts, stacked, strict=True):
            self._moved("Unsqueeze", [part], [name], [0], "axes")
        self._add("Concat", stacked, [target], axis=0)

    def _mask(self, added: str) -> tuple[str, str]:
        """(mask, numbers added to the scores) of the new node, given what the old one adds."""
        node = self._node
        mask = self._input(_MASK[node.op_type])
        if not mask or added or node.attributes.get("unidirectional", 0) or not self._is_mask_of_keys(mask):
            return mask, added
        filter_value = float(node.attributes.get("mask_filter_value", MASK_FILTER_VALUE))
        key = (mask, self._of_input()[1], filter_value)
        if key not in self._biases:
            self._biases[key] = self._bias_of(mask, filter_value)
        return "", self._biases[key]

    def _of_input(self) -> tuple[Dimension, Dimension]:
        """Samples, and rows of each."""
        batch, length, _ = self._graph.node_arg(self._input(0)).shape or (None,) * 3
        return batch, length

    def _is_mask_of_keys(self, mask: str) -> bool:
        """Whether a mask is known to be (batch, keys), or (batch,) ends of keys, and the numbers are to be float32."""
        past, (batch, length) = self._input(_PAST[self._node.op_type]), self._of_input()
        known = self._graph.node_arg(mask)
        is_float = self._graph.node_arg(self._node.outputs[0]).element_type is TensorElementType.FLOAT
        is_whole = known.element_type is TensorElementType.INT32 and self._has("Where")
        if past or not is_float or not is_whole or not known.shape:
            return False
        if len(known.shape) == 1:
            has_positions = isinstance(length, int) or (length is not None and self._has("Range"))
            return batch is not None and known.shape[0] == batch and has_positions
        return len(known.shape) == 2 and known.shape[1] == length and length not in {None, 1}

    def _has(self, op_type: str) -> bool:
        """Whether the model's opset has an operator."""
        return find_schema(op_type, self._opset) is not None

    def _bias_of(self, mask: str, filter_value: float) -> str:
        batch, length = self._of_input()
        shape = self._graph.node_arg(mask).shape or ()
        numbers = [
            add_constant(self._graph, f"{mask}_{name}", ArrayTensor(np.array(value, np.float32)))
            for name, value in (("kept", 0), ("hidden", filter_value))
        ]
        rows = shape[0] if len(shape) > 1 else batch
        float_type = tensor_type(TensorElementType.FLOAT)
        is_kept = self._name(f"{mask}_is_kept", tensor_type(TensorElementType.BOOL), (rows, length))
        flat = self._name(f"{mask}_numbers", float_type, (rows, length))
        bias = self._name(f"{mask}_bias", float_type, (rows, 1, 1, length))
        if len(shape) > 1:
            zero = add_constant(self._graph, f"{mask}_zero", ArrayTensor(np.zeros((), np.int32)))
            self._add("Greater", [mask, zero], [is_kept])
        else:
            ends = self._name(f"{mask}_ends", tensor_type(TensorElementType.INT32), (rows, 1))
            self._moved("Unsqueeze", [mask], [ends], [1], "axes")
            self._add("Less", [self._positions(mask), ends], [is_kept])
        self._add("Where", [is_kept, *numbers], [flat])
        self._moved("Unsqueeze", [flat], [bias], [1, 2], "axes")
        return bias

    def _positions(self, mask: str) -> str:
        """0, 1, ... for each row of a sample: int32."""
        length = self._of_input()[1]
        if isinstance(length, int):
            return add_constant(self._graph, f"{mask}_positions", ArrayTensor(np.arange(length, dtype=np.int32)))
        first, second = (
            add_constant(self._graph, f"{mask}_{name}", ArrayTensor(np.array(value, np.int64)))
            for name, value in (("first", 0), ("second", 1))
        )
        integer = tensor_type(TensorElementType.INT64)
        shape, size = self._name(f"{mask}_shape", integer, (3,)), self._name(f"{mask}_length", integer, ())
        wide = self._name(f"{mask}_places", integer, (length,))
        positions = self._name(f"{mask}_positions", tensor_type(TensorElementType.INT32), (length,))
        self._add("Shape", [self._input(0)], [shape])
        self._add("Gather", [shape, second], [size])
        self._add("Range", [first, size, second], [wide])
        self._add("Cast", [wide], [positions], to=int(TensorElementType.INT32))
        return positions

    def _moved(
        self, op_type: str, inputs: list[str], outputs: list[str], numbers: list[int], attribute: str, **attributes: Any
    ) -> None:
        """A node with numbers that are an attribute or an input, as the operator set has it."""
        if self._opset < INPUTS_WITHOUT_AXES:
            given: dict[str, Any] = {**attributes, attribute: numbers}
            self._add(op_type, inputs, outputs, **given)
            return
        name = add_constant(self._graph, f"{inputs[0]}_{attribute}", ArrayTensor(np.array(numbers, np.int64)))
        self._add(op_type, [*inputs, name], outputs, **attributes)

    def _add(self, op_type: str, inputs: list[str], outputs: list[str], *, domain: str = "", **attributes: Any) -> Node:
        schema = find_schema(op_type, self._context.opset_imports.get(domain, 1), domain)
        version = 1 if schema is None else schema.since_version
        provider = self._node.execution_provider
        self._nodes.append(Node(op_type, inputs, outputs, attributes, domain, outputs[0], "", version, provider))
        return self._nodes[-1]

    def _name(self, wanted: str, type_: str, shape: Sequence[Dimension] | None = None) -> str:
        """A new value's name."""
        name = unused_name(self._graph, wanted)
        self._graph.set_value(NodeArg(name, type_, None if shape is None else tuple(shape)))
        return name
