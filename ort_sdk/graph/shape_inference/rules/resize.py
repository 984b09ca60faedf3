"""Resize and its predecessors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.dimensions import normalized_axis
from ort_sdk.graph.shape_inference.node_call import MAX_CONTENTS, NodeCall, shape_rule


@shape_rule("Resize", "Upsample")
def resize(call: NodeCall) -> list[Shape | None]:
    """Dimensions times scales, rounded down, or the wanted sizes."""
    x = call.shape(0)
    if x is None:
        return [None]
    axes = [normalized_axis(axis, len(x)) for axis in call.attribute("axes") or range(len(x))]
    found = list(x)
    for axis, size in zip(axes, _targets(call, [x[axis] for axis in axes]), strict=True):
        found[axis] = size
    return [tuple(found)]


def _targets(call: NodeCall, sizes: list[Dimension]) -> Sequence[Dimension]:
    scales_at = 1 if call.node.op_type == "Upsample" or call.node.since_version < 11 else 2
    wanted = call.contents(3)
    if wanted is not None and len(wanted) == len(sizes):
        is_stretched = call.attribute("keep_aspect_ratio_policy", "stretch") == "stretch"
        return wanted if is_stretched else [None] * len(sizes)
    scales = call.attribute("scales") or _floats(call, scales_at)
    if scales is None or len(scales) != len(sizes):
        return [None] * len(sizes)
    return [_scaled(size, scale) for size, scale in zip(sizes, scales, strict=True)]


def _scaled(size: Dimension, scale: float) -> Dimension:
    if scale == 1:
        return size
    if not isinstance(size, int):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.float32(size) * np.float32(scale))
    return math.floor(length) if 0 <= length < math.inf else None


def _floats(call: NodeCall, index: int) -> list[float] | None:
    tensor = call.scope.graph.constant(call.node.inputs[index]) if call.has(index) else None
    if tensor is None or len(tensor.shape) != 1 or not 0 < tensor.shape[0] <= MAX_CONTENTS:
        return None
    elements: list[float] = tensor.numpy().tolist()
    return elements
