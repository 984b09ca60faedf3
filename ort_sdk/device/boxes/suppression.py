"""NonMaxSuppression on a device: what is kept is found there, and only its number is read on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_sdk.api import Compute, HostArray, KernelInfo, TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Strided
from ort_sdk.device.launches import KernelSource, Launch, Scalar, index32, index64
from ort_sdk.opset.tensor.nms import SuppressionLimits, suppression_limits

from .texts import ROWS, SUPPRESS_BY_GROUPS, SUPPRESS_BY_LANES

if TYPE_CHECKING:
    from ort_sdk.device.namespace.device_namespace import DeviceNamespace

__all__ = ["non_max_suppression"]

FLOAT, INT32 = TensorElementType.FLOAT, TensorElementType.INT32
INT64, UINT64 = TensorElementType.INT64, TensorElementType.UINT64
BLOCK = 16
"""Boxes kept that a processor's lane compares at once where it computes on no vectors."""
MOST_BOXES = 1 << 28
"""So many cannot be numbered in the 32 bits of the kernels' places in workspace."""


def non_max_suppression(info: KernelInfo, xp: DeviceNamespace, shared: Compute) -> Compute:
    """The node's function; thresholds are arrays of the host."""
    is_centered = bool(info.attribute("center_point_box", 0))
    context = xp.context

    def compute(boxes: DeviceArray, scores: DeviceArray, *thresholds: HostArray | None) -> DeviceArray:
        limits = suppression_limits(info, boxes.shape, scores.shape, *thresholds)
        if not scores.size or limits.most <= 0:
            return boxes.made(context.new((0, 3), INT64))
        if scores.shape[2] >= MOST_BOXES:
            return boxes.made(context.upload(shared(boxes, scores, *thresholds), INT64))
        corners, dense_scores = (arithmetic.cast(each, FLOAT).dense() for each in (boxes, scores))
        kept, counts = _kept(context, corners, dense_scores, limits, is_centered=is_centered)
        ends = xp.module.cumulative_sum(boxes.made(counts))
        total = int(xp.to_host(ends)[-1])
        return boxes.made(_rows(context, kept, ends.dense(), total, scores.shape[1]))

    return compute


def _kept(
    context: DeviceContext, boxes: Strided, scores: Strided, limits: SuppressionLimits, *, is_centered: bool
) -> tuple[Strided, Strided]:
    """Queue what finds the boxes of each batch and class.

    Returns:
        (pairs, most) int32 of boxes, best first, of which as many are valid as (pairs,) int64 say.
    """
    batches, classes, n = scores.shape
    pairs, most = batches * classes, min(limits.most, n)
    kept, counts = context.new((pairs, most), INT32), context.new((pairs,), INT64)
    bound = limits.score_threshold
    defines: dict[str, int] = {"CENTERED": int(is_centered), "BOUNDED": int(bound is not None)}
    thresholds = Scalar("f32", limits.iou_threshold), Scalar("f32", 0.0 if bound is None else bound)
    sizes = index32(classes), index32(n), index32(most)
    if context.device.is_cpu:
        block = context.device.vector_width if context.computes_panels else BLOCK
        pitch = -(-most // block) * block
        heaps, table = context.new((pairs, n), UINT64), context.new((pairs, 5, pitch), FLOAT)
        defines |= {"BLOCK": block} | ({"VW": block} if context.computes_panels else {})
        kernel = KernelSource("suppress", SUPPRESS_BY_LANES, tuple(defines.items()))
        memories = (boxes.held, scores.held, heaps.held, table.held, kept.held, counts.held)
        context.submit(Launch(kernel, (pairs,), (1,), (*memories, *sizes, index32(pitch), *thresholds), (2, 3, 4, 5)))
        return kept, counts
    lanes = context.device.row_lanes(n)
    left = context.new((pairs, n), INT32)
    kernel = KernelSource("suppress", SUPPRESS_BY_GROUPS, (("LANES", lanes), *defines.items()))
    arguments = (boxes.held, scores.held, left.held, kept.held, counts.held, *sizes, *thresholds)
    context.submit(Launch(kernel, (pairs,), (lanes,), arguments, (2, 3, 4)))
    return kept, counts


def _rows(context: DeviceContext, kept: Strided, ends: Strided, total: int, classes: int) -> Strided:
    """(total, 3) int64: batch, class and box of all that is kept."""
    rows = context.new((total, 3), INT64)
    if total:
        (pairs, most), lanes = kept.shape, context.device.lanes
        kernel = KernelSource("kept_rows", ROWS, (("LANES", lanes),))
        sizes = index64(total), index64(pairs), index64(classes), index64(most)
        arguments = (kept.held, ends.held, rows.held, *sizes)
        context.submit(Launch(kernel, (-(-total // lanes),), (lanes,), arguments, (2,)))
    return rows
