"""Operators that only choose among the elements of their input, moved from dequantized elements to quantized ones."""

from __future__ import annotations

import dataclasses

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import GraphMatcher, Match

from .qdq_group import BYTES, QDQGroup, has_same_quantization, read_dequantizer, read_quantizer

__all__ = ["MOVERS", "move", "move_index", "move_split"]

_BY_ORDER = frozenset({"MaxPool", "ReduceMax", "ReduceMin"})
"""Those that choose by order, which a negative scale reverses."""

MOVERS = (
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "MaxPool",
    "ReduceMax",
    "ReduceMin",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""Operators that only choose among the elements of input 0, so that they may choose among quantized ones."""


def move(group: QDQGroup) -> bool:
    """DequantizeLinear → operator → QuantizeLinear, alike, becomes the operator."""
    output, node = group.output, group.node
    if output is None or not group.keeps_parameters() or not _only_chooses(group):
        return False
    moved = dataclasses.replace(
        node.copy(group.matcher.graph), inputs=[group.inputs[0].value, *node.inputs[1:]], outputs=list(output.node.outputs)
    )
    return group.matcher.replace(Match(output.node, *group.members()), moved)


def _only_chooses(group: QDQGroup) -> bool:
    node = group.node
    if node.op_type == "Resize":
        is_inside = node.attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize"
        return node.attributes.get("mode", "nearest") == "nearest" and is_inside
    return node.op_type not in _BY_ORDER or group.keeps_order()


def move_index(group: QDQGroup) -> bool:
    """DequantizeLinear → ArgMax becomes ArgMax of the quantized elements."""
    if group.output is not None or not group.keeps_order() or group.inputs[0].element_type not in BYTES:
        return False
    node = group.node
    moved = dataclasses.replace(node.copy(group.matcher.graph), inputs=[group.inputs[0].value, *node.inputs[1:]])
    return group.matcher.replace(Match(node, *group.members()), moved)


def move_split(matcher: GraphMatcher, node: Node) -> bool:
    """DequantizeLinear → Split → a QuantizeLinear after each output, all of one scale and zero point, becomes Split."""
    source = read_dequantizer(matcher, node.inputs[0])
    targets = [read_quantizer(matcher, name) for name in node.outputs]
    found = [
        target
        for target in targets
        if target is not None and source is not None and has_same_quantization(matcher, source, target)
    ]
    if source is None or len(found) < len(targets):
        return False
    quantizers = [target.node for target in found]
    moved = dataclasses.replace(
        node.copy(matcher.graph),
        inputs=[source.value, *node.inputs[1:]],
        outputs=[quantizer.outputs[0] for quantizer in quantizers],
    )
    shared = matcher.without_shared([source.node], node)
    return matcher.replace(Match(node, *shared, *quantizers), moved)
