"""The largest numbers of rows of float32, in order, and their places.

The best so far lie in a heap, the last of them on top: most numbers are compared with that one only, 16 at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import multiply, splat_f32
from ort_sdk_cpu.simd.heap import rise, sink
from ort_sdk_cpu.simd.memory import load_f32, read_f32, read_i64, write_f32, write_i64
from ort_sdk_cpu.simd.sort_keys import lowest_bit, order_of
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, operation

__all__ = ["largest_of_rows"]

_I64 = ir.IntType(64)
_PLACES = 0xFFFFFFFF


@operation(types.intp, f32x16, f32x16)
def _not_below(builder: Any, x: Any, y: Any) -> Any:
    """A bit for each lane in which x > y, or one of them is NaN."""
    found = builder.fcmp_unordered(">", x, y)
    return builder.zext(builder.bitcast(found, ir.IntType(LANES)), _I64)


@inner
def _key(value: Any, place: int) -> int:
    """Larger for what comes before; of equal numbers that is the one at the lower place."""
    order: int = order_of(value)
    return (order << 32) | (_PLACES - place)


@inner
def _value_of(x: int, key: int) -> Any:
    return read_f32(x + (_PLACES - (key & _PLACES)) * 4)


@inner
def _select(x: int, size: int, count: int, sign: Any, heap: int) -> None:
    """Fill the heap with the keys of the ``count`` largest products with the sign."""
    for place in range(count):
        rise(heap, place, _key(sign * read_f32(x + place * 4), place))
    signs, place = splat_f32(sign), count
    while place < size:
        last = read_i64(heap)
        if place + 16 <= size:
            bits = _not_below(multiply(load_f32(x + place * 4), signs), splat_f32(sign * _value_of(x, last)))
            if not bits:
                place += 16
                continue
            place += lowest_bit(bits)
        key = _key(sign * read_f32(x + place * 4), place)
        if key > last:
            sink(heap, count, 0, key)
        place += 1


@inner
def _write(x: int, count: int, heap: int, values: int, places: int, step: int) -> None:
    """The heap's elements, the best first; the heap is empty then."""
    for left in range(count - 1, -1, -1):
        key = read_i64(heap)
        if values:
            write_f32(values + left * step * 4, _value_of(x, key))
        if places:
            write_i64(places + left * step * 8, _PLACES - (key & _PLACES))
        if left:
            sink(heap, left, 0, read_i64(heap + left * 8))


@task
def largest_of_rows(record: int, part: int, parts: int) -> None:
    """The largest numbers along an axis.

    Arguments: addresses of x (outer, size, step), of the values and the places (outer, count, step; 0 for none), and of
    working memory; outer, size, step, count, bytes of working memory per part (8 for each one wanted, 4 for each of size);
    1, or -1 for the smallest.
    """
    outer, size, step, count = argument(record, 4), argument(record, 5), argument(record, 6), argument(record, 7)
    heap, sign = argument(record, 3) + part * argument(record, 8), number(record, 9)
    row = heap + count * 8
    units = outer * step
    for unit in range(units * part // parts, units * (part + 1) // parts):
        first, column = unit // step, unit % step
        x = argument(record, 0) + (first * size * step + column) * 4
        if step > 1:
            for place in range(size):
                write_f32(row + place * 4, read_f32(x + place * step * 4))
            x = row
        _select(x, size, count, sign, heap)
        start = first * count * step + column
        values, places = argument(record, 1), argument(record, 2)
        _write(x, count, heap, values + start * 4 if values else 0, places + start * 8 if places else 0, step)
