"""Ranks of float64 features among the splits that trees compare them with.

Ranks compare as the numbers do, and are exact in float32: trees of float64 are walked as those of float32 are, over nodes of half
the size, after one binary search for each feature.
"""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.ml.arguments.ranks import SplitRanks
from ort_sdk_cpu.simd.memory import read_f64, read_i64, write_f32

__all__ = ["split_ranks"]


@inline
def _rank(value: float, splits: int, count: int) -> float:
    """Twice the count of splits below a number, and one more if it is one of them."""
    if value != value:  # noqa: PLR0124 - NaN
        return value
    # Without branches on what is compared, which could not be predicted.
    first, left = splits, count
    while left > 1:
        half = left // 2
        first += half * 8 * int(read_f64(first + half * 8 - 8) < value)
        left -= half
    if left:
        first += 8 * int(read_f64(first) < value)
    below = (first - splits) // 8
    rank = 2 * below
    if below < count:
        rank += int(read_f64(first) == value)
    return np.float64(rank)


@task
def split_ranks(args: SplitRanks, thread: int, threads: int) -> None:
    """The rank of each feature of each row; each thread has a range of rows."""
    rows, features = args.rows, args.features
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x, out = args.x + row * args.x_stride, args.out + row * features * 4
        for feature in range(features):
            # Each feature is searched among its own splits only, which are fewer than all: fewer steps, and a smaller rank.
            first = read_i64(args.starts + feature * 8)
            count = read_i64(args.starts + feature * 8 + 8) - first
            write_f32(out + feature * 4, np.float32(_rank(read_f64(x + feature * 8), args.splits + first * 8, count)))
