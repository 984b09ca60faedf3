"""What a fused attention is given beside queries, keys and values: one bias for all of them, and a mask of full size."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Dimension, NodeArg, TensorElementType, find_schema, tensor_type
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import ArrayTensor, Node
from ort_sdk.graph.editing import add_constant, unused_name
from ort_sdk.optimizer.pattern import GraphMatcher

__all__ = ["MaskShape", "NewNodes", "read_bias"]


@dataclass(slots=True)
class NewNodes:
    """Nodes to be added before a fused one."""

    matcher: GraphMatcher
    provider: str
    nodes: list[Node] = field(default_factory=list)
    shared: dict[Hashable, str] = field(default_factory=dict)
    """Those that other fusions may use again."""

    def add(self, op_type: str, inputs: Sequence[str], type_: str, shape: Sequence[Dimension], **attributes: Any) -> str:
        """A node of one output of a known type and shape; returns the output's name."""
        name = unused_name(self.matcher.graph, f"{inputs[0]}_{op_type}")
        schema = find_schema(op_type, self.matcher.opset())
        version = 1 if schema is None else schema.since_version
        self.matcher.graph.set_value(NodeArg(name, type_, tuple(shape)))
        self.nodes.append(
            Node(op_type, list(inputs), [name], attributes, name=name, since_version=version, execution_provider=self.provider)
        )
        return name

    def constant(self, name: str, elements: Sequence[int]) -> str:
        """A vector of int64; returns its name."""
        return add_constant(self.matcher.graph, name, ArrayTensor(np.array(elements, np.int64)))


@dataclass(frozen=True, slots=True)
class MaskShape:
    """Shape that a mask is given: (its batch, its heads, queries, keys)."""

    mask: str
    query: str
    key: str

    def expanded(self, new: NewNodes) -> str:
        """The mask repeated for each query, as the operator wants it; the mask itself if that is its shape."""
        matcher = new.matcher
        shape, query, key = (matcher.argument(name).shape or () for name in (self.mask, self.query, self.key))
        if shape[2] == query[1] and shape[3] == key[1]:
            return self.mask
        found = matcher.shared.get((self.mask, query[1], key[1]))
        if found is not None:
            return found
        target = self._target(new, query[1], key[1])
        whole = (*shape[:2], query[1], key[1])
        expanded = new.add("Expand", [self.mask, target], str(matcher.argument(self.mask).type), whole)
        if query[1] is not None and key[1] is not None:
            new.shared[self.mask, query[1], key[1]] = expanded
        return expanded

    def _target(self, new: NewNodes, queries: Dimension, keys: Dimension) -> str:
        if isinstance(queries, int) and isinstance(keys, int):
            return new.constant(f"{self.mask}_shape", [1, 1, queries, keys])
        ones, second = new.constant(f"{self.mask}_ones", [1, 1]), new.constant(f"{self.mask}_axis", [1])
        int64 = tensor_type(TensorElementType.INT64)
        sizes = []
        sources = [_without_vector(new.matcher, name) for name in (self.query, self.key)]
        for name in sources[:1] if queries == keys and queries is not None else sources:
            whole = new.add("Shape", [name], int64, (3,))
            sizes.append(new.add("Gather", [whole, second], int64, (1,), axis=0))
        return new.add("Concat", [ones, sizes[0], sizes[-1]], int64, (4,), axis=0)


def _without_vector(matcher: GraphMatcher, name: str) -> str:
    """A value of the same shape that stays when the sum with a constant vector becomes part of another node."""
    found = _sum_with_vector(matcher, name)
    return name if found is None else found[0]


def read_bias(matcher: GraphMatcher, values: Sequence[str]) -> tuple[list[str], list[str], list[Node]] | None:
    """Vectors added to queries, keys and values: (what they are added to, the vectors, the sums).

    None unless each of the values is a sum with a constant vector that nothing else reads.
    """
    found = [_sum_with_vector(matcher, name) for name in values]
    if len({id(row[2]) for row in found if row is not None}) != len(values):
        return None
    rows = [row for row in found if row is not None]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _sum_with_vector(matcher: GraphMatcher, name: str) -> tuple[str, str, Node] | None:
    add = matcher.sole_maker(name, "Add")
    if add is None:
        return None
    for data, vector in (add.inputs, reversed(add.inputs)):
        is_vector = matcher.is_constant(vector) and matcher.is_vector_of(vector, data)
        if is_vector and matcher.argument(data).rank == 3:
            return data, vector, add
    return None
