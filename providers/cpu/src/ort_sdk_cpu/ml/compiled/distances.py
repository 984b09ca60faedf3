"""Distances between the rows of two matrices of float32, sixteen rows of the second at a time."""

from __future__ import annotations

from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, square_root, subtract, zero_f32
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, store_f32_first
from ort_sdk_cpu.simd.transpose import transpose_elements

__all__ = ["row_distances"]

_ROWS = 256
"""Rows of the first matrix for which sixteen of the second are put in order."""


@task
def row_distances(record: int, part: int, parts: int) -> None:
    """Sums of squared differences, or their roots.

    Arguments: addresses of a (rows, features), b (others, features), the output (rows, others) and working memory, 64 bytes for
    each feature and part; rows, others, features; whether roots are wanted.
    """
    rows, others, features, is_root = argument(record, 4), argument(record, 5), argument(record, 6), argument(record, 7)
    work, width = argument(record, 3) + part * features * 64, features * 4
    blocks, pieces = (others + 15) // 16, (rows + _ROWS - 1) // _ROWS
    for unit in range(blocks * pieces * part // parts, blocks * pieces * (part + 1) // parts):
        first, start = unit // pieces * 16, unit % pieces * _ROWS
        left = min(others - first, 16)
        for feature in range(0, features, 16):
            place = argument(record, 1) + first * width + feature * 4
            transpose_elements(place, width, left, features - feature, work + feature * 64, 64)
        for row in range(start, min(start + _ROWS, rows)):
            a, total = argument(record, 0) + row * width, zero_f32()
            for feature in range(features):
                difference = subtract(broadcast_f32(a + feature * 4), load_f32(work + feature * 64))
                total = fused_multiply_add(difference, difference, total)
            found = square_root(total) if is_root else total
            store_f32_first(argument(record, 2) + (row * others + first) * 4, found, left)
