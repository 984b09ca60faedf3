"""NonMaxSuppression by a task: the boxes that a plain search keeps, and the shared set's errors."""

import numpy as np
import pytest
from ort_sdk_cpu.image import non_max_suppression

from ort_sdk.api import InvalidArgument


def corners(box, *, centered):
    first, second = box[:2], box[2:]
    if centered:
        return first - second / np.float32(2), first + second / np.float32(2)
    return np.minimum(first, second), np.maximum(first, second)


def overlap(one, other, *, centered):
    (low, high), (other_low, other_high) = corners(one, centered=centered), corners(other, centered=centered)
    sides = np.minimum(high, other_high) - np.maximum(low, other_low)
    area, other_area = np.prod(high - low), np.prod(other_high - other_low)
    if min(*sides, area, other_area) <= 0:
        return np.float32(0)
    return np.prod(sides) / (area + other_area - np.prod(sides))


def expected_rows(boxes, scores, most, share, bound, *, centered):
    rows = []
    for batch, category in np.ndindex(scores.shape[:2]):
        own, kept = scores[batch, category], []
        for box in np.argsort(-own, kind="stable"):
            if len(kept) < most and (bound is None or own[box] > np.float32(bound)):
                others = [overlap(boxes[batch, box], boxes[batch, other], centered=centered) for other in kept]
                if not any(other > np.float32(share) for other in others):
                    kept.append(box)
        rows += [(batch, category, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Few scores go to the task, too."""
    monkeypatch.setattr(non_max_suppression, "is_worth_a_task", lambda *_: True)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize(
    ("most", "share", "bound"),
    [(10, 0.45, 0.3), (3, 0.5, None), (10000, 0.9, 0.2), (7, 0.0, 0.5), (40, 1.0, None), (5, 0.5, 2.0)],
)
@pytest.mark.parametrize(("batches", "classes", "count"), [(1, 7, 100), (2, 3, 33), (3, 2, 1), (1, 1, 16)])
def test_kept_boxes(run_both, batches, classes, count, most, share, bound, centered):
    generator = np.random.default_rng(count)
    boxes = generator.random((batches, count, 4), dtype=np.float32) * 10
    boxes[:, ::5, 2] = boxes[:, ::5, 0] * (1 - centered)
    scores = np.round(generator.standard_normal((batches, classes, count)), 1).astype(np.float32)
    given = [np.array([most]), np.float32([share])] + ([] if bound is None else [np.float32([bound])])
    (found,), _ = run_both("NonMaxSuppression", boxes, scores, *given, center_point_box=int(centered))
    np.testing.assert_array_equal(found, expected_rows(boxes, scores, most, share, bound, centered=centered))


def test_scores_that_lie_apart(run_both):
    generator = np.random.default_rng(0)
    boxes = generator.random((1, 4, 50), dtype=np.float32).transpose(0, 2, 1)
    scores = generator.random((1, 50, 20), dtype=np.float32).transpose(0, 2, 1)
    (found,), _ = run_both("NonMaxSuppression", boxes, scores, np.array([5]), np.float32([0.4]), np.float32([0.2]))
    np.testing.assert_array_equal(found, expected_rows(boxes, scores, 5, 0.4, 0.2, centered=False))


def test_numbers_that_are_none_are_worst(run_both):
    boxes = np.float32([[[0, 0, 1, 1], [0, 5, 1, 6], [5, 0, 6, 1], [5, 5, 6, 6]]])
    scores = np.float32([[[np.nan, -np.inf, np.inf, -0.0]]])
    (found,), _ = run_both("NonMaxSuppression", boxes, scores, np.array([4]), np.float32([0.5]))
    assert found[:, 2].tolist() == [2, 3, 1, 0]
    (found,), _ = run_both("NonMaxSuppression", boxes, scores, np.array([4]), np.float32([0.5]), np.float32([-1]))
    assert found[:, 2].tolist() == [2, 3]


@pytest.mark.parametrize("most", [0, -1, None])
def test_nothing_is_kept(run_both, most):
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    (found,), _ = run_both("NonMaxSuppression", boxes, scores, None if most is None else np.array([most]), np.float32([0.5]))
    assert found.shape == (0, 3)
    assert found.dtype == np.int64


def test_wrong_inputs_are_refused(run_both):
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    with pytest.raises(InvalidArgument, match="boxes"):
        run_both("NonMaxSuppression", boxes, scores[..., :2], np.array([1]))
    with pytest.raises(InvalidArgument, match="iou_threshold"):
        run_both("NonMaxSuppression", boxes, scores, np.array([1]), np.float32([1.5]))
