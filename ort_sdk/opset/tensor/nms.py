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


def _overlaps(box: HostArray, others: HostArray) -> HostArray:
    """Intersection over union of a box (4,) with others (count, 4); 0 where there is no area."""
    sides = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0)
    intersection = sides[:, 0] * sides[:, 1]
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    usable = (areas > 0) & (area > 0) & (intersection > 0)
    shares: HostArray = np.divide(intersection, area + areas - intersection, out=np.zeros_like(intersection), where=usable)
    return shares


def _selected(
    corners: HostArray, scores: HostArray, limit: int, iou_threshold: float, score_threshold: float | None
) -> list[int]:
    """Indices of the boxes kept, best first; of equal scores the earlier box."""
    order = np.argsort(-scores, kind="stable")
    if score_threshold is not None:
        order = order[scores[order] > score_threshold]
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[_overlaps(corners[best], corners[order]) <= iou_threshold]
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
