"""Convolutions of one input whose results are added up, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, private_array
from ort_sdk.graph.editing import add_constant, replace_nodes, single_consumer
from ort_sdk.optimizer.matching import constant_input, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

from .conv_fusion import Affine, batch_norm_affine, moved_bias

__all__ = ["ParallelConvFusion"]

_FLOATS = frozenset({TensorElementType.FLOAT, TensorElementType.DOUBLE})


@dataclass(frozen=True, slots=True)
class _Branch:
    """A convolution by constants."""

    node: Node
    weight: Tensor
    bias: Tensor | None
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    """Begins of all axes, then ends."""

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return int(self.node.attributes.get("group", 1))

    @property
    def growth(self) -> tuple[int, ...]:
        """By how much padding makes each axis larger than the windows make it smaller."""
        rank = len(self.taps)
        return tuple(
            begin + end - dilation * (taps - 1)
            for begin, end, dilation, taps in zip(self.pads[:rank], self.pads[rank:], self.dilations, self.taps, strict=True)
        )


class ParallelConvFusion:
    """Conv(x) + Conv(x) as one Conv, where one's windows hold the other's, and Conv(x) + BatchNormalization(x) too.

    So the branches that networks are trained with (RepVGG, MobileOne, YOLOv6) cost what the largest costs, where an exporter
    left them separate.
    """

    name = "ParallelConvFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Join every such pair; sums of more join as the pass goes on."""
        changed = False
        for add in nodes_of(graph, "Add"):
            changed |= _join_operands(graph, add)
        return changed


def _join_operands(graph: Graph, add: Node) -> bool:
    makers = [_private_maker(graph, add, name) for name in add.inputs]
    branches = [_branch(graph, maker) for maker in makers if maker is not None]
    found = [branch for branch in branches if branch is not None]
    if len(makers) != len(branches) or not found:
        return False
    if len(found) == 2:
        first, second = found
        if first.node is second.node:
            return False
        return _join_convs(graph, add, first, second) or _join_convs(graph, add, second, first)
    other = next(maker for maker in makers if maker is not None and maker is not found[0].node)
    return _join_batch_norm(graph, add, found[0], other)


def _private_maker(graph: Graph, add: Node, name: str) -> Node | None:
    """The node whose first output a sum alone reads."""
    maker = graph.producer(name)
    return maker if maker is not None and maker.outputs[0] == name and single_consumer(graph, name) is add else None


def _branch(graph: Graph, node: Node) -> _Branch | None:
    if node.op_type != "Conv" or node.domain or node.attributes.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return None
    weight, bias = constant_input(graph, node, 1), constant_input(graph, node, 2)
    if weight is None or weight.element_type not in _FLOATS or (bias is None and is_given(node, 2)):
        return None
    taps, attributes = tuple(weight.shape[2:]), node.attributes
    rank, is_padded = len(taps), attributes.get("auto_pad", "NOTSET") == "NOTSET"
    strides = tuple(attributes.get("strides") or (1,) * rank)
    dilations = tuple(attributes.get("dilations") or (1,) * rank)
    pads = tuple((is_padded and attributes.get("pads")) or (0,) * (2 * rank))
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        return None
    return _Branch(node, weight, bias, taps, strides, dilations, pads)


def _join_convs(graph: Graph, add: Node, outer: _Branch, inner: _Branch) -> bool:
    """Put a convolution's taps to those of another, if they are among them."""
    if outer.node.inputs[0] != inner.node.inputs[0] or _fixed(outer) != _fixed(inner):
        return False
    offsets = _offsets(outer, inner)
    if offsets is None:
        return False
    window = (slice(None), slice(None), *(slice(offset, offset + taps) for offset, taps in zip(offsets, inner.taps, strict=True)))

    def compute(weight: Tensor, addend: Tensor) -> HostArray:
        elements = private_array(weight)
        elements[window] += addend.numpy()
        return elements

    weight = _constant(f"taps at {offsets} added", outer.weight, (outer.weight, inner.weight), compute)
    _replace(graph, add, (outer.node, inner.node), outer, weight, _sum_of_biases([outer.bias, inner.bias]))
    return True


def _fixed(branch: _Branch) -> tuple[object, ...]:
    """What convolutions that become one have in common: type and channels, offsets of their windows, size of their results."""
    return branch.weight.element_type, branch.weight.shape[:2], branch.groups, branch.strides, branch.growth


def _offsets(outer: _Branch, inner: _Branch) -> tuple[int, ...] | None:
    """Which tap of one convolution reads what the other's first does, by axis; None if not all have one."""
    offsets: list[int] = []
    for axis, dilation in enumerate(outer.dilations):
        offset, remainder = divmod(outer.pads[axis] - inner.pads[axis], dilation)
        if remainder or offset < 0 or offset + inner.taps[axis] > outer.taps[axis]:
            return None
        if inner.taps[axis] > 1 and inner.dilations[axis] != dilation:
            return None
        offsets.append(offset)
    return tuple(offsets)


def _join_batch_norm(graph: Graph, add: Node, conv: _Branch, norm: Node) -> bool:
    """Put a normalization of the convolution's own input to the tap that reads the output's position."""
    if norm.op_type != "BatchNormalization" or norm.domain or norm.inputs[0] != conv.node.inputs[0]:
        return False
    affine = batch_norm_affine(graph, conv.node, norm, conv.weight)
    begins = conv.pads[: len(conv.taps)]
    centre = tuple(pad // dilation for pad, dilation in zip(begins, conv.dilations, strict=True))
    is_centred = all(
        offset * dilation == pad and offset < taps
        for pad, dilation, offset, taps in zip(begins, conv.dilations, centre, conv.taps, strict=True)
    )
    channels, inputs = conv.weight.shape[:2]
    is_same_size = not any(conv.growth) and all(step == 1 for step in conv.strides) and inputs * conv.groups == channels
    if affine is None or not is_centred or not is_same_size:
        return False
    tap = int(np.ravel_multi_index(centre, conv.taps))
    # The convolution's own bias stays as it is.
    shift = Affine(
        f"shift of {affine.transformation}", affine.sources, lambda: (None, affine.rows()[1]), scales=False, shifts=True
    )

    def compute(weight: Tensor, *_statistics: Tensor) -> HostArray:
        elements = private_array(weight)
        scale, _ = affine.rows()
        each, by_tap = np.arange(channels), elements.reshape(channels, inputs, -1)
        by_tap[each, each % inputs, tap] += scale
        return elements

    weight = _constant(f"{affine.transformation} added at {centre}", conv.weight, (conv.weight, *affine.sources), compute)
    _replace(graph, add, (conv.node, norm), conv, weight, moved_bias(conv.node, conv.weight, conv.bias, shift))
    return True


def _sum_of_biases(biases: Sequence[Tensor | None]) -> Tensor | None:
    given = [bias for bias in biases if bias is not None]
    if len(given) < 2:
        return given[0] if given else None

    def compute(first: Tensor, second: Tensor) -> HostArray:
        total = private_array(first)
        total += second.numpy()
        return total

    return _constant("sum", given[0], given, compute)


def _constant(transformation: str, like: Tensor, sources: Sequence[Tensor], compute: Callable[..., HostArray]) -> Tensor:
    return DerivedTensor(transformation, like.element_type, tuple(like.shape), sources, compute)


def _replace(graph: Graph, add: Node, replaced: tuple[Node, Node], kept: _Branch, weight: Tensor, bias: Tensor | None) -> None:
    output = add.outputs[0]
    inputs = [kept.node.inputs[0], add_constant(graph, f"{output}/weight", weight)]
    if bias is not None:
        inputs.append(add_constant(graph, f"{output}/bias", bias))
    since = kept.node.since_version
    joined = Node("Conv", inputs, [output], dict(kept.node.attributes), name=kept.node.name, since_version=since)
    replace_nodes(graph, [*replaced, add], [joined])
