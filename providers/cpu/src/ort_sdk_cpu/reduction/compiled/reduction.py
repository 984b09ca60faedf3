"""Reductions of float32, of axes that lie in memory in any order.

All tasks take the same arguments: addresses of x and the output; sizes of three axes that stay, the bytes between elements along
them in x, and in the output; sizes of two axes that go, and the bytes between elements along them in x; a factor of each element,
a divisor of each result, and whether its root is taken. Tasks of rows want elements of the last axis that goes next to each other
in x; those of columns want it of the last axis that stays, in x and in the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import add, divide, maximum_or_nan, multiply, splat_f32
from ort_sdk_cpu.simd.memory import load_f32, load_f32_first, read_f32, store_f32, store_f32_first, write_f32
from ort_sdk_cpu.simd.remainder import load_f32_first_or
from ort_sdk_cpu.simd.shuffles import even_lanes, odd_lanes

__all__ = [
    "largest_columns",
    "largest_rows",
    "product_columns",
    "product_rows",
    "square_columns",
    "square_rows",
    "sum_columns",
    "sum_rows",
]

_ZERO, _ONE = np.float32(0), np.float32(1)
_LOWEST = np.float32(-np.inf)
_PIECE = 1 << 12
"""Elements, and rows of columns, whose sum is made before it is added to those before it: so little is rounded off."""


@inner
def _plain(value: Any, _factor: Any) -> Any:
    return value


@inner
def _scaled(value: Any, factor: Any) -> Any:
    return multiply(value, factor)


@inner
def _square(value: Any, _factor: Any) -> Any:
    return multiply(value, value)


@inner
def _all_lanes(combine: Any, value: Any) -> Any:
    """The lanes combined, in every lane."""
    for _ in range(4):
        value = combine(even_lanes(value, value), odd_lanes(value, value))
    return value


@inner
def _places(record: int, unit: int, last: int) -> tuple[int, int]:
    """Where the elements of a result begin in x, and the result; ``last`` is how many of the last axis that stays there are."""
    middle = argument(record, 3)
    first, second, third = unit // last // middle, unit // last % middle, unit % last
    x = first * argument(record, 5) + second * argument(record, 6) + third * argument(record, 7)
    out = first * argument(record, 8) + second * argument(record, 9) + third * argument(record, 10)
    return argument(record, 0) + x, argument(record, 1) + out


@inner
def _finish(record: int, out: int, count: int) -> None:
    """Quotients of results, and their roots, in place."""
    divisor = splat_f32(number(record, 16))
    for place in range(out, out + count * 4, 64):
        left = count - (place - out) // 4
        store_f32_first(place, divide(load_f32_first(place, left), divisor), left)
    if argument(record, 17):
        for place in range(out, out + count * 4, 4):
            write_f32(place, np.sqrt(read_f32(place)))


@inner
def _row(combine: Any, prepare: Any, lowest: float, x: int, count: int, factor: Any) -> Any:
    """Elements next to each other, combined by lanes."""
    # Lanes behind the last element are such that they change nothing once they are multiplied.
    start, rest = splat_f32(lowest), multiply(splat_f32(lowest), factor)
    a, b, c, d = start, start, start, start
    whole = count // 64 * 256
    for place in range(x, x + whole, 256):
        a, b = combine(prepare(load_f32(place), factor), a), combine(prepare(load_f32(place + 64), factor), b)
        c = combine(prepare(load_f32(place + 128), factor), c)
        d = combine(prepare(load_f32(place + 192), factor), d)
    for place in range(whole, count * 4, 64):
        a = combine(prepare(load_f32_first_or(x + place, count - place // 4, rest), factor), a)
    return combine(combine(a, b), combine(c, d))


@inner
def _rows(combine: Any, prepare: Any, lowest: float, record: int, part: int, parts: int) -> None:
    last, outer, count, step = argument(record, 4), argument(record, 11), argument(record, 12), argument(record, 13)
    units, factor = argument(record, 2) * argument(record, 3) * last, splat_f32(number(record, 15))
    for unit in range(units * part // parts, units * (part + 1) // parts):
        x, out = _places(record, unit, last)
        total = splat_f32(lowest)
        for index in range(outer):
            for start in range(0, count, _PIECE):
                piece = min(_PIECE, count - start)
                total = combine(_row(combine, prepare, lowest, x + index * step + start * 4, piece, factor), total)
        store_f32_first(out, _all_lanes(combine, total), 1)
        _finish(record, out, 1)


@inner
def _column(combine: Any, prepare: Any, lowest: float, record: int, x: int, left: int) -> Any:
    """Up to sixteen columns, every other row in another sum."""
    total, factor = splat_f32(lowest), splat_f32(number(record, 15))
    rows, step = argument(record, 12), argument(record, 14)
    for index in range(argument(record, 11)):
        for start in range(0, rows, _PIECE):
            a, b = splat_f32(lowest), splat_f32(lowest)
            stop = min(start + _PIECE, rows)
            place = x + index * argument(record, 13) + start * step
            for _ in range((stop - start) // 2):
                a = combine(prepare(load_f32_first(place, left), factor), a)
                b = combine(prepare(load_f32_first(place + step, left), factor), b)
                place += 2 * step
            if (stop - start) % 2:
                a = combine(prepare(load_f32_first(place, left), factor), a)
            total = combine(combine(a, b), total)
    return total


@inner
def _four_columns(combine: Any, prepare: Any, lowest: float, record: int, x: int, out: int) -> None:
    """Sixty-four columns, in the order of ``_column``; their sums are kept in the output from piece to piece."""
    factor, step, rows = splat_f32(number(record, 15)), argument(record, 14), argument(record, 12)
    start = splat_f32(lowest)
    for place in range(0, 256, 64):
        store_f32(out + place, start)
    for index in range(argument(record, 11)):
        for first in range(0, rows, _PIECE):
            a, b, c, d, e, f, g, h = start, start, start, start, start, start, start, start
            place, count = x + index * argument(record, 13) + first * step, min(_PIECE, rows - first)
            for _ in range(count // 2):
                a, b = combine(prepare(load_f32(place), factor), a), combine(prepare(load_f32(place + 64), factor), b)
                c, d = combine(prepare(load_f32(place + 128), factor), c), combine(prepare(load_f32(place + 192), factor), d)
                place += step
                e, f = combine(prepare(load_f32(place), factor), e), combine(prepare(load_f32(place + 64), factor), f)
                g, h = combine(prepare(load_f32(place + 128), factor), g), combine(prepare(load_f32(place + 192), factor), h)
                place += step
            if count % 2:
                a, b = combine(prepare(load_f32(place), factor), a), combine(prepare(load_f32(place + 64), factor), b)
                c, d = combine(prepare(load_f32(place + 128), factor), c), combine(prepare(load_f32(place + 192), factor), d)
            store_f32(out, combine(combine(a, e), load_f32(out)))
            store_f32(out + 64, combine(combine(b, f), load_f32(out + 64)))
            store_f32(out + 128, combine(combine(c, g), load_f32(out + 128)))
            store_f32(out + 192, combine(combine(d, h), load_f32(out + 192)))


@inner
def _columns(combine: Any, prepare: Any, lowest: float, record: int, part: int, parts: int) -> None:
    width = argument(record, 4)
    pieces = (width + 63) // 64
    units = argument(record, 2) * argument(record, 3) * pieces
    for unit in range(units * part // parts, units * (part + 1) // parts):
        x, out = _places(record, unit // pieces, 1)
        begin = unit % pieces * 64
        x, out, left = x + begin * 4, out + begin * 4, min(64, width - begin)
        if left == 64:
            _four_columns(combine, prepare, lowest, record, x, out)
        else:
            for column in range(0, left, 16):
                place = column * 4
                store_f32_first(out + place, _column(combine, prepare, lowest, record, x + place, left - column), left - column)
        _finish(record, out, left)


@task
def sum_rows(record: int, part: int, parts: int) -> None:
    """Sums."""
    _rows(add, _plain, _ZERO, record, part, parts)


@task
def sum_columns(record: int, part: int, parts: int) -> None:
    """Sums."""
    _columns(add, _plain, _ZERO, record, part, parts)


@task
def square_rows(record: int, part: int, parts: int) -> None:
    """Sums of squares."""
    _rows(add, _square, _ZERO, record, part, parts)


@task
def square_columns(record: int, part: int, parts: int) -> None:
    """Sums of squares."""
    _columns(add, _square, _ZERO, record, part, parts)


@task
def largest_rows(record: int, part: int, parts: int) -> None:
    """The largest elements times the factor, 1 or -1; NaN where one is NaN."""
    _rows(maximum_or_nan, _scaled, _LOWEST, record, part, parts)


@task
def largest_columns(record: int, part: int, parts: int) -> None:
    """The largest elements times the factor, 1 or -1; NaN where one is NaN."""
    _columns(maximum_or_nan, _scaled, _LOWEST, record, part, parts)


@task
def product_rows(record: int, part: int, parts: int) -> None:
    """Products."""
    _rows(multiply, _plain, _ONE, record, part, parts)


@task
def product_columns(record: int, part: int, parts: int) -> None:
    """Products."""
    _columns(multiply, _plain, _ONE, record, part, parts)
