"""NonMaxSuppression by a compiled task."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.kernel.eager_tasks import EagerCall
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task, threads_for
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .arguments.non_max_suppression import MODULE, SelectedIndices, Suppression

__all__: list[str] = []

LANES = 16
SCORE_WORK = 4
"""Elements of a few instructions each that looking at a score is worth."""
MOST_BOXES = 1 << 31
"""So many cannot be numbered in four bytes."""


@direct_call("NonMaxSuppression")
def non_max_suppression(info: KernelInfo) -> EagerCall | None:
    """int64 rows (batch, class, box) of float32 boxes kept."""
    if not libraries.compiled_kernels().is_usable or info.input_element_type(0) is not TensorElementType.FLOAT:
        return None
    centered, workspace = int(info.attribute("center_point_box", 0)), workspace_of(info)

    def call(boxes: HostArray, scores: HostArray, *options: HostArray | None) -> Any:
        most, share, bound = (*map(_number, options), None, None, None)[:3]
        if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
            return NotImplemented
        batches, classes, count = scores.shape
        most = min(int(most or 0), count)
        is_valid = most > 0 and 0 <= (share or 0) <= 1 and count < MOST_BOXES
        if not is_valid or not is_worth_a_task(scores.size, MODULE, "suppress"):
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        boxes, scores = np.ascontiguousarray(boxes), np.ascontiguousarray(scores)
        pairs = batches * classes
        threads = min(threads_for(SCORE_WORK * scores.size), pairs)
        room = count * 8 + -(-most // LANES) * LANES * 20
        kept, counts = np.empty((pairs, most), np.int32), np.empty(pairs, np.int64)
        buffer, thresholds = workspace.buffer(MODULE, room * threads), (float(share or 0), float(bound or 0))
        limits = (most, centered, int(bound is not None), *thresholds)
        arguments = Suppression(boxes, scores, kept, counts, buffer, pairs, count, classes, *limits)
        task_function(MODULE, "suppress")(threads, arguments)
        rows = np.empty((int(counts.sum()), 3), np.int64)
        task_function(MODULE, "selected_indices")(1, SelectedIndices(kept, counts, rows, pairs, classes, most))
        return rows

    return call


def _number(value: HostArray | None) -> Any:
    return None if value is None or value.size == 0 else value.item(0)
