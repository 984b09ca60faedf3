"""Distances between the rows of two matrices of float32."""

from __future__ import annotations

from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.distances import Distances
from ort_sdk_cpu.simd.arithmetic import fused_multiply_add, square_root, subtract, zero_f32
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, store_f32_masked
from ort_sdk_cpu.simd.transpose import transpose_elements

__all__ = ["cdist"]

_ROWS = 256
"""Rows of the first matrix for which sixteen of the second are transposed: so many that this takes little beside them, and so few
that a few rows of the second are work for several threads."""


@task
def cdist(args: Distances, thread: int, threads: int) -> None:
    """Sums of squared differences, or their roots; each thread has a range of blocks of 16 rows of b and 256 of a."""
    # Differences are squared, and not |a|^2 - 2ab + |b|^2 made of a GEMM: that cancels where rows are near each other.
    rows, others, features = args.rows, args.others, args.features
    work, row_bytes = args.workspace + thread * features * 64, features * 4
    blocks, pieces = (others + 15) // 16, (rows + _ROWS - 1) // _ROWS
    for unit in range(blocks * pieces * thread // threads, blocks * pieces * (thread + 1) // threads):
        first, start = unit // pieces * 16, unit % pieces * _ROWS
        left = min(others - first, 16)
        # Sixteen rows of b side by side, feature by feature, as the panels of a GEMM are packed: a vector is of 16 distances.
        for feature in range(0, features, 16):
            block = args.b + first * row_bytes + feature * 4
            transpose_elements(block, row_bytes, left, features - feature, work + feature * 64, 64)
        for row in range(start, min(start + _ROWS, rows)):
            a, total = args.a + row * row_bytes, zero_f32()
            for feature in range(features):
                difference = subtract(broadcast_f32(a + feature * 4), load_f32(work + feature * 64))
                total = fused_multiply_add(difference, difference, total)
            distance = square_root(total) if args.has_root else total
            store_f32_masked(args.out + (row * others + first) * 4, distance, left)
