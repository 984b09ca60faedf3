"""NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.definition import operator

__all__ = ["SuppressionLimits", "non_max_suppression", "suppression_limits"]


@dataclass(frozen=True, slots=True)
class SuppressionLimits:
    """What bounds the boxes that are kept."""

    most: int
    """Boxes of each class and batch."""
    iou_threshold: float
    """Intersection over union with a better box above which one is dropped."""
    score_threshold: float | None
    """That scores must be above."""


def suppression_limits(
    info: KernelInfo,
    boxes: tuple[int, ...],
    scores: tuple[int, ...],
    max_output_boxes_per_class: HostArray | None = None,
    iou_threshold: HostArray | None = None,
    score_threshold: HostArray | None = None,
) -> SuppressionLimits:
    """The operator's limits; absent and empty ones are 0, and any score.

    Args:
        info: the node.
        boxes: their shape.
        scores: likewise.
        max_output_boxes_per_class: input.
        iou_threshold: input.
        score_threshold: input.

    Raises:
        InvalidArgument: the shapes do not fit each other, or the threshold is no share.
    """
    if len(boxes) != 3 or len(scores) != 3 or boxes != (scores[0], scores[2], 4):
        raise InvalidArgument(
            f"{info.describe()}: boxes {boxes} must be (batches, boxes, 4) and scores {scores} (batches, classes, boxes)"
        )
    overlap, bound = float(_number(iou_threshold) or 0), _number(score_threshold)
    if not 0 <= overlap <= 1:
        raise InvalidArgument(f"{info.describe()}: iou_threshold is {overlap}; it must be within [0, 1]")
    return SuppressionLimits(int(_number(max_output_boxes_per_class) or 0), overlap, None if bound is None else float(bound))


def _number(value: HostArray | None) -> Any:
    return None if value is None or value.size == 0 else value.reshape(-1)[0]


def _corners(boxes: HostArray, *, centered: bool) -> HostArray:
    """Boxes (..., 4) as (low, low, high, high), whichever corners or centers were given."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _overlaps(boxes: HostArray, others: HostArray) -> HostArray:
    """Intersection over union (boxes, others) of boxes (count, 4); 0 where there is no area."""
    low = np.maximum(boxes[:, np.newaxis, :2], others[:, :2])
    high = np.minimum(boxes[:, np.newaxis, 2:], others[:, 2:])
    intersection = np.prod(np.maximum(high - low, 0), axis=-1)
    areas, other_areas = (np.prod(part[:, 2:] - part[:, :2], axis=-1) for part in (boxes, others))
    union = areas[:, np.newaxis] + other_areas - intersection
    usable = (areas[:, np.newaxis] > 0) & (other_areas > 0) & (intersection > 0)
    shares: HostArray = np.divide(intersection, union, out=np.zeros_like(intersection), where=usable)
    return shares


_CHUNK = 128
"""Candidates compared at a time: most nodes stop long before they have looked at all boxes."""


def _selected(corners: HostArray, scores: HostArray, limits: SuppressionLimits) -> list[int]:
    """Indices of the boxes kept, best first; of equal scores the earlier box."""
    order = np.argsort(-scores, kind="stable")
    if limits.score_threshold is not None:
        order = order[scores[order] > limits.score_threshold]
    kept: list[int] = []
    for begin in range(0, order.size, _CHUNK):
        chunk = order[begin : begin + _CHUNK]
        if kept:
            chunk = chunk[~np.any(_overlaps(corners[kept], corners[chunk]) > limits.iou_threshold, axis=0)]
        clashes = _overlaps(corners[chunk], corners[chunk]) > limits.iou_threshold
        alive = np.ones(chunk.size, dtype=bool)
        for position in range(chunk.size):
            if alive[position]:
                kept.append(int(chunk[position]))
                alive &= ~clashes[position]
            if len(kept) >= limits.most:
                return kept[: limits.most]
    return kept


@operator("NonMaxSuppression", shape_inputs=None, host_inputs=(-1,), host_outputs=(0,))
def non_max_suppression(info: KernelInfo, _xp: Any) -> Compute:
    """int64 (count, 3) rows (batch, class, box) of the boxes kept, class by class, best first; computed on the host."""
    centered = bool(info.attribute("center_point_box", 0))

    def compute(boxes: HostArray, scores: HostArray, *thresholds: HostArray | None) -> HostArray:
        limits = suppression_limits(info, boxes.shape, scores.shape, *thresholds)
        corners = _corners(boxes, centered=centered)
        rows = [
            (batch, category, box)
            for batch in range(scores.shape[0])
            for category in range(scores.shape[1])
            for box in _selected(corners[batch], scores[batch, category], limits)
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    return compute
