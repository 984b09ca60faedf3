"""Places of numbers among those that they are compared with: they compare as the numbers do."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.memory import read_f64, read_i64, write_f32

__all__ = ["ranks"]


@inner
def _rank(value: float, splits: int, count: int) -> float:
    """Twice the count of splits below a number, and one more if it is one of them."""
    if value != value:  # noqa: PLR0124 - not a number
        return value
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
def ranks(record: int, part: int, parts: int) -> None:
    """Numbers' places among those that they are compared with.

    Arguments: addresses of x, of the ranks (rows, features), float32, of where each feature's splits begin, with one more for the
    end, int64, and of the splits, float64; rows, bytes from row to row of x, features. A row of x has as many float64 or more.
    """
    rows, features = argument(record, 4), argument(record, 6)
    starts, splits = argument(record, 2), argument(record, 3)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x, out = argument(record, 0) + row * argument(record, 5), argument(record, 1) + row * features * 4
        for feature in range(features):
            first = read_i64(starts + feature * 8)
            count = read_i64(starts + feature * 8 + 8) - first
            write_f32(out + feature * 4, np.float32(_rank(read_f64(x + feature * 8), splits + first * 8, count)))
