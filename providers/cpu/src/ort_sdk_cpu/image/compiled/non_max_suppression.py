"""NonMaxSuppression over float32: for each class the boxes that are kept, best first.

Candidates are in a heap: most classes stop long before they have looked at all of them, so that a full sort is wasted work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.image.arguments.non_max_suppression import SelectedIndices, Suppression
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import maximum, minimum, splat_f32, subtract
from ort_sdk_cpu.simd.heap import sift_down, sort_key, trailing_zeros
from ort_sdk_cpu.simd.memory import load_f32, load_f32_masked, read_f32, read_i32, read_i64, write_f32, write_i32, write_i64
from ort_sdk_cpu.simd.vector_types import LANES, VF32, f32x16, operation

__all__ = ["selected_indices", "suppress"]

_I64 = ir.IntType(64)
_WORST = 0x7FFFFFFF << 32
"""A key behind that of all numbers."""


def _bits(builder: Any, lanes: Any) -> Any:
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _I64)


@operation(types.intp, f32x16, f32x16)
def _above(builder: Any, x: Any, y: Any) -> Any:
    """A bit for each lane in which x > y."""
    return _bits(builder, builder.fcmp_ordered(">", x, y))


@operation(types.intp, f32x16, f32x16, f32x16, f32x16, f32x16)
def _overlapping(builder: Any, width: Any, height: Any, area: Any, other: Any, share: Any) -> Any:
    """A bit for each lane in which the intersection of this width and height is more than this share of two areas."""
    zero = ir.Constant(VF32, None)
    # Ordered comparisons: NaN and empty boxes overlap with nothing.
    common = builder.fmul(width, height)
    union = builder.fsub(builder.fadd(area, other), common)
    found = builder.fcmp_ordered(">", builder.fdiv(common, union), share)
    for value in (width, height, common, area, other, union):
        found = builder.and_(found, builder.fcmp_ordered(">", value, zero))
    return _bits(builder, found)


@inline
def _key(score: np.float32, box: int) -> int:
    """Smaller for the better box: that of the higher score, of equal ones the earlier. One integer comparison for both."""
    # NaN comes last, as in NumPy: comparisons with it say nothing.
    if score != score:  # noqa: PLR0124 - not a number
        return _WORST + box
    order: int = sort_key(score)
    return (-order << 32) + box


@inline
def _candidates(args: Suppression, scores: int, heap: int) -> int:
    """Make a heap of the boxes' keys; their number."""
    boxes, bound = args.box_count, splat_f32(args.score_threshold)
    count = 0
    for box in range(0, boxes, LANES):
        left = boxes - box
        bits = (1 << min(left, LANES)) - 1
        if args.has_score_threshold != 0:
            bits &= _above(load_f32(scores + box * 4) if left >= LANES else load_f32_masked(scores + box * 4, left), bound)
        # One turn per candidate, not per box: thresholds leave few.
        while bits != 0:
            lane = trailing_zeros(bits)
            bits &= bits - 1
            write_i64(heap + count * 8, _key(read_f32(scores + (box + lane) * 4), box + lane))
            count += 1
    # Floyd's bottom-up construction (1964): linear in the number of keys.
    for index in range(count // 2 - 1, -1, -1):
        sift_down(heap, count, index, read_i64(heap + index * 8))
    return count


@inline
def _extent(corner: int, centered: int) -> Any:
    """(low, high) of a box along an axis, whose numbers are two apart."""
    first, second = read_f32(corner), read_f32(corner + 8)
    if centered != 0:
        half = second / np.float32(2)
        return first - half, first + half
    return min(first, second), max(first, second)


@inline
def _is_free(kept: int, pitch: int, count: int, box: Any, share: np.float32) -> bool:
    """Whether a box overlaps with none of those kept: 16 of them are compared at a time."""
    for address in range(kept, kept + count * 4, LANES * 4):
        area = load_f32(address + 4 * pitch)
        width = subtract(minimum(load_f32(address + 2 * pitch), splat_f32(box[2])), maximum(load_f32(address), splat_f32(box[0])))
        height = subtract(
            minimum(load_f32(address + 3 * pitch), splat_f32(box[3])), maximum(load_f32(address + pitch), splat_f32(box[1]))
        )
        bits = _overlapping(width, height, area, splat_f32(box[4]), splat_f32(share))
        if bits & ((1 << min(count - (address - kept) // 4, LANES)) - 1):
            return False
    return True


@inline
def _suppress(args: Suppression, pair: int, heap: int) -> int:
    """Keep boxes of a batch and class; their number."""
    boxes, most, centered = args.box_count, args.most, args.is_centered
    # Boxes kept are stored by coordinate (structure of arrays), so that vectors of them are loaded as they are.
    pitch = (most + LANES - 1) // LANES * LANES * 4
    kept, corners = heap + boxes * 8, args.boxes + pair // args.classes * boxes * 16
    found, left = 0, _candidates(args, args.scores + pair * boxes * 4, heap)
    while left > 0 and found < most:
        index = read_i64(heap) & 0xFFFFFFFF
        left -= 1
        sift_down(heap, left, 0, read_i64(heap + left * 8))
        low_x, high_x = _extent(corners + index * 16, centered)
        low_y, high_y = _extent(corners + index * 16 + 4, centered)
        box = (low_x, low_y, high_x, high_y, (high_x - low_x) * (high_y - low_y))
        if _is_free(kept, pitch, found, box, args.iou_threshold):
            for position in range(5):
                write_f32(kept + position * pitch + found * 4, box[position])
            write_i32(args.kept + (pair * most + found) * 4, index)
            found += 1
    return found


@task
def suppress(args: Suppression, thread: int, threads: int) -> None:
    """Greedy non-maximum suppression: each thread has a range of pairs of batch and class."""
    room = args.box_count * 8 + (args.most + LANES - 1) // LANES * LANES * 20
    for pair in range(args.pairs * thread // threads, args.pairs * (thread + 1) // threads):
        write_i64(args.kept_counts + pair * 8, _suppress(args, pair, args.workspace + thread * room))


@task
def selected_indices(args: SelectedIndices, _thread: int, _threads: int) -> None:
    """int64 rows (batch, class, box) of what ``suppress`` kept."""
    out = args.out
    for pair in range(args.pairs):
        for position in range(read_i64(args.kept_counts + pair * 8)):
            write_i64(out, pair // args.classes)
            write_i64(out + 8, pair % args.classes)
            write_i64(out + 16, read_i32(args.kept + (pair * args.most + position) * 4))
            out += 24
