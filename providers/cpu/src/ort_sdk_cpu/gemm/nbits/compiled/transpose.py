"""Weights and scales of DequantizeLinear, [K, N], brought into MatMulNBits' layout, [N, ...].

A weight is read in strips of 64 bytes of its rows, some strips side by side, down to its last row: so what is written is
contiguous. Threads share the strips.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.nbits.arguments.transpose import WORKSPACE_BYTES, TransposeCodes, TransposeScales
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import Task, task
from ort_sdk_cpu.simd.transpose import MERGE_ROWS, transpose_elements, transpose_merged

__all__ = ["transpose_codes_2", "transpose_codes_4", "transpose_codes_8", "transpose_scales"]

_STRIP = 64
# A cache line of the source has 64 bytes; four strips read four lines of a row that follow each other.
_SIDE_BY_SIDE = 4


@inline
def _tile(
    source: int,
    stride: int,
    first: int,
    rows: int,
    flip: int,
    target: int,
    width: int,
    count: int,
    work: int,
    planes: int,
    merge: Any,
) -> None:
    """A strip's 64 * planes rows from the first on, or what there is of them; ``count`` times 4 bytes of each column."""
    for group in range(16):
        # The last row stands for those missing, which nobody reads.
        row = first + group * 4 * planes
        merge(source + min(row, rows - 1) * stride, stride, rows - row, flip, work + group * 64)
    for position in range(planes):
        for part in range(4):
            column = position + planes * 4 * part
            transpose_merged(work + (position * 4 + part) * 1024, target + column * width, planes * width, count)


def _codes(bits: int) -> Task:
    merge, planes = MERGE_ROWS[bits], 8 // bits

    def transpose_codes(args: TransposeCodes, thread: int, threads: int) -> None:
        source, target, rows, stride = args.source, args.target, args.rows, args.stride
        width, flip, work = args.width, np.int32(args.sign_flip), args.workspace + thread * WORKSPACE_BYTES
        strips = (stride + _STRIP - 1) // _STRIP
        last_strip = strips * (thread + 1) // threads
        for start in range(strips * thread // threads, last_strip, _SIDE_BY_SIDE):
            for place in range(0, width, 64):
                for strip in range(start, min(start + _SIDE_BY_SIDE, last_strip)):
                    # The last strip overlaps the one before: whole vectors, no masks.
                    byte, count = min(strip * _STRIP, stride - _STRIP), (width - place) // 4
                    goal = target + byte * planes * width + place
                    _tile(source + byte, stride, place * planes, rows, flip, goal, width, count, work, planes, merge)

    transpose_codes.__name__ += f"_{bits}"
    return task(transpose_codes)


transpose_codes_2, transpose_codes_4, transpose_codes_8 = (_codes(bits) for bits in (2, 4, 8))


@task
def transpose_scales(args: TransposeScales, thread: int, threads: int) -> None:
    """Scales, 16 by 16."""
    source, target, rows, columns = args.source, args.target, args.rows, args.columns
    for column in range(columns * thread // threads, columns * (thread + 1) // threads, 16):
        last = min(16, columns * (thread + 1) // threads - column)
        for row in range(0, rows, 16):
            goal = target + (column * rows + row) * 4
            transpose_elements(source + (row * columns + column) * 4, columns * 4, rows - row, last, goal, rows * 4)
