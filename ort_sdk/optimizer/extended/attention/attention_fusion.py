"""Scaled dot-product attention over heads from its parts."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, Shape
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.graph import ArrayTensor, Node
from ort_sdk.graph.editing import add_constant
from ort_sdk.optimizer.extended.matmul_fusion import scaling
from ort_sdk.optimizer.pattern import MICROSOFT, FusionPass, GraphMatcher, Match

from .attention_inputs import MaskShape, NewNodes, read_bias

__all__ = ["AttentionBiasFusion", "AttentionFusion"]

HEADS_FIRST = (0, 2, 1, 3)
HEADS_FIRST_TRANSPOSED = (0, 2, 3, 1)


@dataclass(slots=True)
class _Heads:
    """A (batch, sequence, width) value split into heads, on the way to a MatMul."""

    value: str
    heads: int
    size: int
    permutation: tuple[int, ...] = (0, 1, 2, 3)
    scale: float = 1.0
    nodes: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class _Scores:
    """What goes into the softmax."""

    query: _Heads
    key: _Heads
    scale: float
    bias: str
    nodes: list[Node]


class AttentionFusion(FusionPass):
    """Heads split, multiplied, scaled, masked, softmax, multiplied and merged become ``com.microsoft`` MultiHeadAttention.

    The projections stay MatMuls of their own. A mask is taken if it is a number for each query and key, shared by the
    batch or the heads or not.
    """

    name = "AttentionFusion"
    anchors = ("Softmax",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        scores = _read_scores(matcher, node)
        matmul = matcher.reader(node.outputs[0], "MatMul")
        if scores is None or matmul is None or matmul.inputs[0] != node.outputs[0]:
            return None
        value = _read_heads(matcher, matmul.inputs[1])
        merged = _read_merge(matcher, matmul, value) if value is not None else None
        if value is None or merged is None or not _fit(matcher, scores, value):
            return None
        names = [scores.query.value, scores.key.value, value.value]
        attributes = {"num_heads": scores.query.heads, "scale": scores.scale}
        nodes = [*scores.nodes, *scores.query.nodes, *scores.key.nodes, *value.nodes]
        match = Match(merged[-1], *merged, matmul, node, *nodes)
        new = NewNodes(matcher, node.execution_provider)
        bias = MaskShape(scores.bias, names[0], names[1]).expanded(new) if scores.bias else ""
        return matcher.fuse(match, "MultiHeadAttention", [*names, "", "", bias], attributes) and matcher.add(
            new.nodes, new.shared
        )


class AttentionBiasFusion(FusionPass):
    """Constant vectors added to the queries, keys and values of MultiHeadAttention become its ``bias``."""

    name = "AttentionBiasFusion"
    anchors = (f"{MICROSOFT}:MultiHeadAttention",)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        if len(node.inputs) < 3 or not all(node.inputs[:3]) or any(node.inputs[3:4]) or any(node.inputs[6:]):
            return None
        found = read_bias(matcher, node.inputs[:3])
        if found is None:
            return None
        sources, vectors, sums = found
        elements = np.concatenate([_vector(matcher, name) for name in vectors])
        bias = add_constant(matcher.graph, f"{node.name}_bias", ArrayTensor(elements))
        inputs = [*sources, bias, *node.inputs[4:]]
        return matcher.fuse(Match(node, *sums), node.op_type, inputs, node.attributes)


def _fit(matcher: GraphMatcher, scores: _Scores, value: _Heads) -> bool:
    query, key = scores.query, scores.key
    shapes = [matcher.argument(heads.value).shape for heads in (query, key, value)]
    batches = {shape[0] if shape else None for shape in shapes}
    if len(batches) != 1 or None in batches:
        return False
    is_arranged = query.permutation == value.permutation == HEADS_FIRST and key.permutation == HEADS_FIRST_TRANSPOSED
    return is_arranged and value.scale == 1.0 and query.heads == key.heads == value.heads and query.size == key.size


def _read_scores(matcher: GraphMatcher, softmax: Node) -> _Scores | None:
    rank = matcher.argument(softmax.inputs[0]).rank
    axis = softmax.attributes.get("axis", -1 if matcher.opset() >= 13 else 1)
    if rank != 4 or axis not in (-1, 3):
        return None
    nodes: list[Node] = []
    name, bias = _read_bias(matcher, softmax.inputs[0], nodes)
    scale = 1.0
    scaled = matcher.sole_maker(name, "Mul", "Div")
    found = scaling(matcher, scaled)
    if scaled is not None and found is not None:
        name, scale = found
        nodes.append(scaled)
    matmul = matcher.sole_maker(name, "MatMul")
    query, key = (_read_heads(matcher, operand) for operand in matmul.inputs) if matmul is not None else (None, None)
    if matmul is None or query is None or key is None or bias is None:
        return None
    scale *= query.scale * key.scale
    return _Scores(query, key, scale, bias, [*nodes, matmul]) if scale else None


def _read_bias(matcher: GraphMatcher, name: str, nodes: list[Node]) -> tuple[str, str | None]:
    """(scores before the mask, mask): no name for no mask, None for one of a shape that the operator does not take."""
    add = matcher.sole_maker(name, "Add")
    if add is None:
        return name, ""
    nodes.append(add)
    for scores, mask in (add.inputs, reversed(add.inputs)):
        if _is_product(matcher, scores) and _is_mask(matcher.argument(scores).shape, matcher.argument(mask).shape):
            return scores, mask
    return name, None


def _is_product(matcher: GraphMatcher, name: str) -> bool:
    """Whether a value is made by MatMul, scaled or not."""
    maker = matcher.sole_maker(name, "MatMul", "Mul", "Div")
    found = scaling(matcher, maker) if maker is not None and maker.op_type != "MatMul" else (name, 1.0)
    return maker is not None and found is not None and matcher.sole_maker(found[0], "MatMul") is not None


def _is_mask(scores: Shape | None, mask: Shape | None) -> bool:
    """Whether a mask can be repeated to the scores' shape.

    It has one number for each key, or one for all: no model that runs has others, since the weights are then multiplied with as
    many values as there are keys.
    """
    if scores is None or mask is None or len(mask) != 4 or None in mask:
        return False
    return mask[0] in (1, scores[0]) and mask[1] in (1, scores[1]) and mask[2] in (1, scores[2])


def _read_heads(matcher: GraphMatcher, name: str) -> _Heads | None:
    """Follow a value back through scalings and transposes to the Reshape that splits the heads."""
    nodes: list[Node] = []
    permutation, scale = (0, 1, 2, 3), 1.0
    while True:
        maker = matcher.sole_maker(name, "Transpose", "Mul", "Div", "Reshape")
        if maker is None:
            return None
        nodes.append(maker)
        if maker.op_type == "Reshape":
            split = _split_heads(matcher, maker)
            return split and _Heads(maker.inputs[0], *split, permutation, scale, nodes)
        if maker.op_type == "Transpose":
            own = tuple(maker.attributes.get("perm", ()))
            if len(own) != 4:
                return None
            permutation = tuple(own[axis] for axis in permutation)
            name = maker.inputs[0]
            continue
        found = scaling(matcher, maker)
        if found is None:
            return None
        name, scale = found[0], scale * found[1]


def _keeps_leading(matcher: GraphMatcher, reshape: Node) -> bool:
    """Whether a Reshape leaves the first two axes (batch and sequence) as they are."""
    target = matcher.constant(reshape.inputs[1])
    if target is not None and not reshape.attributes.get("allowzero", 0) and target.tolist()[:2] == [0, 0]:
        return True
    before, after = (matcher.argument(name).shape for name in (reshape.inputs[0], reshape.outputs[0]))
    return before is not None and after is not None and None not in before[:2] and before[:2] == after[:2]


def _split_heads(matcher: GraphMatcher, reshape: Node) -> tuple[int, int] | None:
    """(heads, size) of a Reshape from (batch, sequence, heads * size) to (batch, sequence, heads, size)."""
    before, after = (matcher.argument(name).shape for name in (reshape.inputs[0], reshape.outputs[0]))
    if before is None or after is None or len(before) != 3 or len(after) != 4 or not _keeps_leading(matcher, reshape):
        return None
    heads, size = after[2:]
    if not isinstance(heads, int) or not isinstance(size, int) or before[2] != heads * size:
        return None
    return heads, size


def _read_merge(matcher: GraphMatcher, matmul: Node, value: _Heads) -> list[Node] | None:
    """The Transpose and the Reshape that put the heads side by side again."""
    transpose = matcher.reader(matmul.outputs[0], "Transpose")
    reshape = matcher.reader(transpose.outputs[0], "Reshape") if transpose is not None else None
    if transpose is None or reshape is None or tuple(transpose.attributes.get("perm", ())) != HEADS_FIRST:
        return None
    shape = matcher.argument(reshape.outputs[0]).shape
    is_merged = shape is not None and len(shape) == 3 and shape[2] == value.heads * value.size
    return [transpose, reshape] if is_merged and _keeps_leading(matcher, reshape) else None


def _vector(matcher: GraphMatcher, name: str) -> HostArray:
    tensor = matcher.graph.constant(name)
    if tensor is None:
        raise InvalidGraph(f"value '{name}' is no constant any more")
    return tensor.numpy()
