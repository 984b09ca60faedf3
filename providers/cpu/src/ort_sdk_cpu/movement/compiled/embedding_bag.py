"""Sums, means and maxima of rows of a table, which follow each other in a list of their numbers."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32_first, read_i64, store_f32_first, write_i64

__all__ = ["reduce_bag"]

_MEAN, _MAX = 1, 2


@task
def reduce_bag(record: int, _part: int, _parts: int) -> None:
    """(failed, table, numbers, start, end, out, rows, count, columns, kind): of the rows that numbers[start:end] name.

    ``numbers`` are ``count`` int64; ``start`` and ``end`` are where one int64 is each, as Slice has them. ``kind`` is 0 for sums,
    1 for means, 2 for maxima. ``failed`` becomes 1, and nothing is written, where there is no row, or a number is out of range.
    """
    table, numbers, out = argument(record, 1), argument(record, 2), argument(record, 5)
    start, end = read_i64(argument(record, 3)), read_i64(argument(record, 4))
    rows, count, columns, kind = argument(record, 6), argument(record, 7), argument(record, 8), argument(record, 9)
    start = min(max(start + count if start < 0 else start, 0), count)
    end = min(max(end + count if end < 0 else end, 0), count)
    failed = 1 if start >= end else 0
    for place in range(start, end):
        row = read_i64(numbers + place * 8)
        if row < -rows or row >= rows:
            failed = 1
    write_i64(record, failed)
    if failed:
        return
    for column in range(0, columns, 16):
        left, here = columns - column, table + column * 4
        row = read_i64(numbers + start * 8)
        result = load_f32_first(here + (row + rows if row < 0 else row) * columns * 4, left)
        for place in range(start + 1, end):
            row = read_i64(numbers + place * 8)
            other = load_f32_first(here + (row + rows if row < 0 else row) * columns * 4, left)
            result = maximum_or_nan(result, other) if kind == _MAX else add(result, other)
        if kind == _MEAN:
            result = divide(result, splat_f32(np.float32(end - start)))
        store_f32_first(out + column * 4, result, left)
