"""NonMaxSuppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["non_max_suppression"]


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


def _selected(
    corners: HostArray, scores: HostArray, limit: int, iou_threshold: float, score_threshold: float | None
) -> list[int]:
    """Indices of the boxes kept, best first; of equal scores the earlier box."""
    order = np.argsort(-scores, kind="stable")
    if score_threshold is not None:
        order = order[scores[order] > score_threshold]
    kept: list[int] = []
    for begin in range(0, order.size, _CHUNK):
        chunk = order[begin : begin + _CHUNK]
        if kept:
            chunk = chunk[~np.any(_overlaps(corners[kept], corners[chunk]) > iou_threshold, axis=0)]
        clashes = _overlaps(corners[chunk], corners[chunk]) > iou_threshold
        alive = np.ones(chunk.size, dtype=bool)
        for position in range(chunk.size):
            if alive[position]:
                kept.append(int(chunk[position]))
                alive &= ~clashes[position]
            if len(kept) >= limit:
                return kept[:limit]
    return kept


def _number(value: HostArray | None) -> Any:
    return None if value is None or value.size == 0 else value.reshape(-1)[0]


@operator("NonMaxSuppression", shape_inputs=None, host_inputs=(-1,), host_outputs=(0,))
def non_max_suppression(info: KernelInfo, _xp: Any) -> Compute:
    """int64 (count, 3) rows (batch, class, box) of the boxes kept, class by class, best first; computed on the host."""
    centered = bool(info.attribute("center_point_box", 0))

    def compute(
        boxes: HostArray,
        scores: HostArray,
        max_output_boxes_per_class: HostArray | None = None,
        iou_threshold: HostArray | None = None,
        score_threshold: HostArray | None = None,
    ) -> HostArray:
        if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
            raise InvalidArgument(
                f"{info.describe()}: boxes {boxes.shape} must be (batches, boxes, 4) and scores {scores.shape} "
                "(batches, classes, boxes)"
            )
        limit = int(_number(max_output_boxes_per_class) or 0)
        overlap = float(_number(iou_threshold) or 0)
        if not 0 <= overlap <= 1:
            raise InvalidArgument(f"{info.describe()}: iou_threshold is {overlap}; it must be within [0, 1]")
        corners = _corners(boxes, centered=centered)
        rows = [
            (batch, category, box)
            for batch in range(scores.shape[0])
            for category in range(scores.shape[1])
            for box in _selected(corners[batch], scores[batch, category], limit, overlap, _number(score_threshold))
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    return compute
