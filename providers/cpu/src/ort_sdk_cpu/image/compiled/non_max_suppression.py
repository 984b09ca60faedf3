"""NonMaxSuppression over float32: for each class the boxes that are kept, best first.

Candidates lie in a heap: most classes stop long before they have looked at all of them, so that they need not be sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import maximum, minimum, splat_f32, subtract
from ort_sdk_cpu.simd.heap import sink
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, read_i32, read_i64, write_f32, write_i32, write_i64
from ort_sdk_cpu.simd.sort_keys import lowest_bit, order_of
from ort_sdk_cpu.simd.vector_types import LANES, VF32, f32x16, operation

__all__ = ["box_rows", "kept_boxes"]

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
    common = builder.fmul(width, height)
    union = builder.fsub(builder.fadd(area, other), common)
    found = builder.fcmp_ordered(">", builder.fdiv(common, union), share)
    for value in (width, height, common, area, other, union):
        found = builder.and_(found, builder.fcmp_ordered(">", value, zero))
    return _bits(builder, found)


@inner
def _key(score: np.float32, box: int) -> int:
    """Smaller for the better box: that of the higher score, of equal ones the earlier."""
    if score != score:  # noqa: PLR0124 - not a number
        return _WORST + box
    order: int = order_of(score)
    return (-order << 32) + box


@inner
def _candidates(record: int, scores: int, heap: int) -> int:
    """Make a heap of the boxes' keys; their number."""
    boxes, is_bounded, bound = argument(record, 6), argument(record, 10), splat_f32(number(record, 12))
    count = 0
    for box in range(0, boxes, LANES):
        left = boxes - box
        bits = (1 << min(left, LANES)) - 1
        if is_bounded != 0:
            bits &= _above(load_f32(scores + box * 4) if left >= LANES else load_f32_first(scores + box * 4, left), bound)
        while bits != 0:
            lane = lowest_bit(bits)
            bits &= bits - 1
            write_i64(heap + count * 8, _key(read_f32(scores + (box + lane) * 4), box + lane))
            count += 1
    for place in range(count // 2 - 1, -1, -1):
        sink(heap, count, place, read_i64(heap + place * 8))
    return count


@inner
def _extent(place: int, centered: int) -> Any:
    """(low, high) of a box along an axis, whose numbers lie two apart."""
    first, second = read_f32(place), read_f32(place + 8)
    if centered != 0:
        half = second / np.float32(2)
        return first - half, first + half
    return min(first, second), max(first, second)


@inner
def _is_free(kept: int, pitch: int, count: int, box: Any, share: np.float32) -> bool:
    """Whether a box overlaps with none of those kept."""
    for place in range(kept, kept + count * 4, LANES * 4):
        area = load_f32(place + 4 * pitch)
        width = subtract(minimum(load_f32(place + 2 * pitch), splat_f32(box[2])), maximum(load_f32(place), splat_f32(box[0])))
        height = subtract(
            minimum(load_f32(place + 3 * pitch), splat_f32(box[3])), maximum(load_f32(place + pitch), splat_f32(box[1]))
        )
        bits = _overlapping(width, height, area, splat_f32(box[4]), splat_f32(share))
        if bits & ((1 << min(count - (place - kept) // 4, LANES)) - 1):
            return False
    return True


@inner
def _suppress(record: int, pair: int, heap: int) -> int:
    """Keep boxes of a batch and class; their number."""
    boxes, classes, most, centered = argument(record, 6), argument(record, 7), argument(record, 8), argument(record, 9)
    pitch = (most + LANES - 1) // LANES * LANES * 4
    kept, corners = heap + boxes * 8, argument(record, 0) + pair // classes * boxes * 16
    found, left = 0, _candidates(record, argument(record, 1) + pair * boxes * 4, heap)
    while left > 0 and found < most:
        index = read_i64(heap) & 0xFFFFFFFF
        left -= 1
        sink(heap, left, 0, read_i64(heap + left * 8))
        low_x, high_x = _extent(corners + index * 16, centered)
        low_y, high_y = _extent(corners + index * 16 + 4, centered)
        box = (low_x, low_y, high_x, high_y, (high_x - low_x) * (high_y - low_y))
        if _is_free(kept, pitch, found, box, number(record, 11)):
            for position in range(5):
                write_f32(kept + position * pitch + found * 4, box[position])
            write_i32(argument(record, 2) + (pair * most + found) * 4, index)
            found += 1
    return found


@task
def kept_boxes(record: int, part: int, parts: int) -> None:
    """Indices of the boxes kept.

    Arguments: addresses of boxes (batches, boxes, 4), of scores (batches, classes, boxes), of int32 (pairs, most) for indices and
    int64 (pairs,) for their numbers, for pairs of batch and class, and of working memory; pairs, boxes, classes, and how many are
    kept of each at most; whether boxes are given by their centers, and scores bounded; the share of overlaps, and the bound.
    Working memory of each part has room for an int64 per box and, per box kept, for 5 float32 in whole vectors.
    """
    pairs, boxes, most = argument(record, 5), argument(record, 6), argument(record, 8)
    room = boxes * 8 + (most + LANES - 1) // LANES * LANES * 20
    for pair in range(pairs * part // parts, pairs * (part + 1) // parts):
        write_i64(argument(record, 3) + pair * 8, _suppress(record, pair, argument(record, 4) + part * room))


@task
def box_rows(record: int, _part: int, _parts: int) -> None:
    """(indices, numbers, out, pairs, classes, most): int64 rows (batch, class, box) of what ``kept_boxes`` found."""
    indices, out = argument(record, 0), argument(record, 2)
    for pair in range(argument(record, 3)):
        for position in range(read_i64(argument(record, 1) + pair * 8)):
            write_i64(out, pair // argument(record, 4))
            write_i64(out + 8, pair % argument(record, 4))
            write_i64(out + 16, read_i32(indices + (pair * argument(record, 5) + position) * 4))
            out += 24
