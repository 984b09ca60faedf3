"""EmbeddingBag: sums, means and maxima of rows of a table, which a slice of a list of indices names."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.movement.arguments.embedding_bag import EmbeddingBag
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, splat_f32
from ort_sdk_cpu.simd.memory import load_f32_masked, read_i64, store_f32_masked

__all__ = ["embedding_bag"]

_MEAN, _MAX = 1, 2


@inline
def _clamped(index: int, count: int) -> int:
    """An end of a slice, as Slice has it: counted from the end if it is negative, and cut."""
    return min(max(index + count if index < 0 else index, 0), count)


@inline
def _row(args: EmbeddingBag, position: int) -> int:
    """Bytes to the row that an index names."""
    row: int = read_i64(args.indices + position * 8)
    return (row + args.rows if row < 0 else row) * args.columns * 4


@inline
def _is_out_of_range(args: EmbeddingBag, start: int, end: int) -> bool:
    """Whether there is no index, or one is out of range."""
    failed = start >= end
    for position in range(start, end):
        row = read_i64(args.indices + position * 8)
        if row < -args.rows or row >= args.rows:
            failed = True
    return failed


@task
def embedding_bag(args: EmbeddingBag, _thread: int, _threads: int) -> None:
    """The rows of a bag combined; one thread."""
    columns, count = args.columns, args.count
    start, end = _clamped(read_i64(args.start), count), _clamped(read_i64(args.end), count)
    # All indices are looked at before any row is: nothing is written where one is out of range.
    failed = _is_out_of_range(args, start, end)
    args.failed = 1 if failed else 0
    if failed:
        return
    # 16 columns of all rows, then the next: the sums stay in a register.
    for column in range(0, columns, 16):
        left, table = columns - column, args.table + column * 4
        result = load_f32_masked(table + _row(args, start), left)
        for position in range(start + 1, end):
            other = load_f32_masked(table + _row(args, position), left)
            result = maximum_or_nan(result, other) if args.mode == _MAX else add(result, other)
        if args.mode == _MEAN:
            result = divide(result, splat_f32(np.float32(end - start)))
        store_f32_masked(args.out + column * 4, result, left)
