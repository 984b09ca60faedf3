"""Reductions of float32 in any layout: of rows, which are contiguous in x, or of columns, which are contiguous across.

Sums are made by blocks, as in NumPy's pairwise summation (Higham 1993): an error grows with the elements of a block and with the
number of blocks, not with the number of elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.reduction.arguments.reduce import Reduce
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, multiply, splat_f32
from ort_sdk_cpu.simd.memory import (
    load_f32,
    load_f32_masked,
    load_f32_masked_or,
    read_f32,
    store_f32,
    store_f32_masked,
    write_f32,
)
from ort_sdk_cpu.simd.shuffles import even_lanes, odd_lanes

__all__ = [
    "max_columns",
    "max_rows",
    "prod_columns",
    "prod_rows",
    "sum_columns",
    "sum_rows",
    "sum_square_columns",
    "sum_square_rows",
]

_ZERO, _ONE = np.float32(0), np.float32(1)
_LOWEST = np.float32(-np.inf)
_BLOCK = 1 << 12
"""Elements, or rows of columns, that are summed before their sum is added to those of the blocks before: of a million elements,
each lane adds 64 in a block, and 244 blocks."""


@inline
def _plain(value: Any, _factor: Any) -> Any:
    return value


@inline
def _scaled(value: Any, factor: Any) -> Any:
    return multiply(value, factor)


@inline
def _square(value: Any, _factor: Any) -> Any:
    return multiply(value, value)


@inline
def _all_lanes(combine: Any, value: Any) -> Any:
    """The lanes combined, in every lane."""
    # Pairs of neighbours, four times: any function combines so, where LLVM has reductions of a few only.
    for _ in range(4):
        value = combine(even_lanes(value, value), odd_lanes(value, value))
    return value


@inline
def _addresses(args: Reduce, unit: int, last: int) -> tuple[int, int]:
    """Where the elements of a result begin in x, and the result; ``last`` is how many of the last axis that is kept there are."""
    first, second, third = unit // last // args.kept_1, unit // last % args.kept_1, unit % last
    x = first * args.x_kept_stride_0 + second * args.x_kept_stride_1 + third * args.x_kept_stride_2
    out = first * args.out_stride_0 + second * args.out_stride_1 + third * args.out_stride_2
    return args.x + x, args.out + out


@inline
def _finish(args: Reduce, out: int, count: int) -> None:
    """Results divided, and their roots, in place."""
    # A mean divides, and does not multiply by a reciprocal: that would be rounded twice.
    divisor = splat_f32(args.divisor)
    for offset in range(0, count * 4, 64):
        left = count - offset // 4
        store_f32_masked(out + offset, divide(load_f32_masked(out + offset, left), divisor), left)
    if args.has_root:
        for offset in range(0, count * 4, 4):
            write_f32(out + offset, np.sqrt(read_f32(out + offset)))


@inline
def _row(combine: Any, prepare: Any, identity: float, x: int, count: int, factor: Any) -> Any:
    """Contiguous elements combined by lanes."""
    # Lanes behind the last element are such that they change nothing once they are multiplied.
    start, neutral = splat_f32(identity), multiply(splat_f32(identity), factor)
    # Four accumulators hide the latency of an addition, some four cycles in which one alone would wait for itself.
    a, b, c, d = start, start, start, start
    whole = count // 64 * 256
    for offset in range(0, whole, 256):
        a = combine(prepare(load_f32(x + offset), factor), a)
        b = combine(prepare(load_f32(x + offset + 64), factor), b)
        c = combine(prepare(load_f32(x + offset + 128), factor), c)
        d = combine(prepare(load_f32(x + offset + 192), factor), d)
    for offset in range(whole, count * 4, 64):
        a = combine(prepare(load_f32_masked_or(x + offset, count - offset // 4, neutral), factor), a)
    return combine(combine(a, b), combine(c, d))


@inline
def _rows(combine: Any, prepare: Any, identity: float, args: Reduce, thread: int, threads: int) -> None:
    last, outer, count, stride = args.kept_2, args.reduced_0, args.reduced_1, args.x_reduced_stride_0
    units, factor = args.kept_0 * args.kept_1 * last, splat_f32(args.factor)
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        x, out = _addresses(args, unit, last)
        total = splat_f32(identity)
        for index in range(outer):
            for start in range(0, count, _BLOCK):
                block = min(_BLOCK, count - start)
                total = combine(_row(combine, prepare, identity, x + index * stride + start * 4, block, factor), total)
        store_f32_masked(out, _all_lanes(combine, total), 1)
        _finish(args, out, 1)


@inline
def _column(combine: Any, prepare: Any, identity: float, args: Reduce, x: int, left: int) -> Any:
    """Up to sixteen columns; every other row goes to another accumulator."""
    # Two accumulators for even and odd rows, as ``_four_columns`` has for each column.
    total, factor = splat_f32(identity), splat_f32(args.factor)
    rows, stride = args.reduced_1, args.x_reduced_stride_1
    for index in range(args.reduced_0):
        for start in range(0, rows, _BLOCK):
            a, b = splat_f32(identity), splat_f32(identity)
            stop = min(start + _BLOCK, rows)
            row = x + index * args.x_reduced_stride_0 + start * stride
            for _ in range((stop - start) // 2):
                a = combine(prepare(load_f32_masked(row, left), factor), a)
                b = combine(prepare(load_f32_masked(row + stride, left), factor), b)
                row += 2 * stride
            if (stop - start) % 2:
                a = combine(prepare(load_f32_masked(row, left), factor), a)
            total = combine(combine(a, b), total)
    return total


@inline
def _four_columns(combine: Any, prepare: Any, identity: float, args: Reduce, x: int, out: int) -> None:
    """Sixty-four columns, in the order of ``_column``, so that a column's sum does not depend on its neighbours' number."""
    # Four cache lines of a row are read before the next row is: with one each, every line would be a page apart from the one
    # before. The totals of blocks stay in the output: eight accumulators of two registers each are all that AVX2 has.
    factor, stride, rows = splat_f32(args.factor), args.x_reduced_stride_1, args.reduced_1
    start = splat_f32(identity)
    for offset in range(0, 256, 64):
        store_f32(out + offset, start)
    for index in range(args.reduced_0):
        for first in range(0, rows, _BLOCK):
            a, b, c, d, e, f, g, h = start, start, start, start, start, start, start, start
            row, count = x + index * args.x_reduced_stride_0 + first * stride, min(_BLOCK, rows - first)
            for _ in range(count // 2):
                a, b = combine(prepare(load_f32(row), factor), a), combine(prepare(load_f32(row + 64), factor), b)
                c, d = combine(prepare(load_f32(row + 128), factor), c), combine(prepare(load_f32(row + 192), factor), d)
                row += stride
                e, f = combine(prepare(load_f32(row), factor), e), combine(prepare(load_f32(row + 64), factor), f)
                g, h = combine(prepare(load_f32(row + 128), factor), g), combine(prepare(load_f32(row + 192), factor), h)
                row += stride
            if count % 2:
                a, b = combine(prepare(load_f32(row), factor), a), combine(prepare(load_f32(row + 64), factor), b)
                c, d = combine(prepare(load_f32(row + 128), factor), c), combine(prepare(load_f32(row + 192), factor), d)
            store_f32(out, combine(combine(a, e), load_f32(out)))
            store_f32(out + 64, combine(combine(b, f), load_f32(out + 64)))
            store_f32(out + 128, combine(combine(c, g), load_f32(out + 128)))
            store_f32(out + 192, combine(combine(d, h), load_f32(out + 192)))


@inline
def _columns(combine: Any, prepare: Any, identity: float, args: Reduce, thread: int, threads: int) -> None:
    # Groups of 64 columns are the unit that threads share: of a matrix with few columns, the first axes are shared instead.
    width = args.kept_2
    groups = (width + 63) // 64
    units = args.kept_0 * args.kept_1 * groups
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        x, out = _addresses(args, unit // groups, 1)
        begin = unit % groups * 64
        x, out, left = x + begin * 4, out + begin * 4, min(64, width - begin)
        if left == 64:
            _four_columns(combine, prepare, identity, args, x, out)
        else:
            for column in range(0, left, 16):
                total = _column(combine, prepare, identity, args, x + column * 4, left - column)
                store_f32_masked(out + column * 4, total, left - column)
        _finish(args, out, left)


@task
def sum_rows(args: Reduce, thread: int, threads: int) -> None:
    """Sums of rows; each thread has a range of results."""
    _rows(add, _plain, _ZERO, args, thread, threads)


@task
def sum_columns(args: Reduce, thread: int, threads: int) -> None:
    """Sums of columns; each thread has a range of groups of 64 results."""
    _columns(add, _plain, _ZERO, args, thread, threads)


@task
def sum_square_rows(args: Reduce, thread: int, threads: int) -> None:
    """Sums of squares of rows."""
    _rows(add, _square, _ZERO, args, thread, threads)


@task
def sum_square_columns(args: Reduce, thread: int, threads: int) -> None:
    """Sums of squares of columns."""
    _columns(add, _square, _ZERO, args, thread, threads)


@task
def max_rows(args: Reduce, thread: int, threads: int) -> None:
    """The largest products of a row with the factor, 1 or -1; NaN where one is NaN."""
    _rows(maximum_or_nan, _scaled, _LOWEST, args, thread, threads)


@task
def max_columns(args: Reduce, thread: int, threads: int) -> None:
    """The largest products of a column with the factor, 1 or -1; NaN where one is NaN."""
    _columns(maximum_or_nan, _scaled, _LOWEST, args, thread, threads)


@task
def prod_rows(args: Reduce, thread: int, threads: int) -> None:
    """Products of rows."""
    _rows(multiply, _plain, _ONE, args, thread, threads)


@task
def prod_columns(args: Reduce, thread: int, threads: int) -> None:
    """Products of columns."""
    _columns(multiply, _plain, _ONE, args, thread, threads)
