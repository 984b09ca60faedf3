"""Elements and slices at places that are known when they are read, and the places of the largest.

The first argument of a task that looks at indices becomes 1 where one is out of range, and nothing is read or written there. With
several threads it stays as it is where all are in range: it has to be 0 before.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import maximum_or_nan, multiply, splat_f32, splat_i32, zero_i32
from ort_sdk_cpu.simd.memory import (
    emit_store,
    load_f32,
    load_f32_first,
    prefetch,
    read_f32,
    read_i32,
    read_i64,
    store_f32_first,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, i32x16, operation

__all__ = [
    "add_elements",
    "largest_along",
    "one_hot",
    "put_elements",
    "put_slices",
    "reverse_rows",
    "take_along",
    "take_elements",
    "take_slices",
    "take_tuples",
]

_ADD, _MULTIPLY, _LARGEST, _LEAST = 1, 2, 3, 4
_MOST_ASKED = 1024
"""Words of a slice after which the processor itself asks for those that follow."""


@inner
def _given(address: int, size: int) -> Any:
    """An index of 4 or 8 bytes."""
    return read_i64(address) if size == 8 else int(read_i32(address))


@inner
def _index(address: int, size: int, limit: int) -> Any:
    """An index of 4 or 8 bytes, counted from the front; -1 if it is out of range."""
    found = _given(address, size)
    if found < 0:
        found += limit
    return found if 0 <= found < limit else -1


@inner
def _copy(target: int, source: int, words: int) -> None:
    for word in range(0, words, 16):
        store_f32_first(target + word * 4, load_f32_first(source + word * 4, words - word), words - word)


@inner
def _ask_for(source: int, words: int) -> None:
    """Bring a slice, or its beginning, into the cache: it lies where nothing but its index tells."""
    for word in range(0, min(words, _MOST_ASKED), 16):
        prefetch(source + word * 4)


@inner
def _element(record: int, place: int) -> int:
    """Which element an index names, for the tasks that have offsets; -1 if it is out of range."""
    size = argument(record, 4)
    index = _index(argument(record, 2) + place * size, size, argument(record, 5))
    return read_i64(argument(record, 7) + place * 8) + index * argument(record, 8) if index >= 0 else -1


@inner
def _report(record: int, parts: int, failed: int) -> None:
    if failed or parts == 1:
        write_i64(record, failed)


@task
def take_slices(record: int, part: int, parts: int) -> None:
    """(failed, data, indices, out, size of an index, limit, count, before, words, stride, least): slices of words of 4 bytes.

    ``before`` is how often ``limit`` slices follow each other, of which ``count`` are taken; from an index to the next are
    ``stride`` bytes. Indices are not below ``least``; negative ones count from behind.
    """
    data, indices, out = argument(record, 1), argument(record, 2), argument(record, 3)
    size, limit, count = argument(record, 4), argument(record, 5), argument(record, 6)
    words, stride, least = argument(record, 8), argument(record, 9), argument(record, 10)
    slices = count * argument(record, 7)
    first, failed = slices * part // parts, 0
    block, place = (first // count, first % count) if slices else (0, 0)
    for taken in range(first, slices * (part + 1) // parts):
        index = _index(indices + place * stride, size, limit)
        if index < 0 or _given(indices + place * stride, size) < least:
            failed = 1
        else:
            if words >= LANES and place + 1 < count:
                following = _index(indices + (place + 1) * stride, size, limit)
                _ask_for(data + (block * limit + following) * words * 4, words)
            _copy(out + taken * words * 4, data + (block * limit + index) * words * 4, words)
        place += 1
        if place == count:
            block, place = block + 1, 0
    _report(record, parts, failed)


@task
def take_elements(record: int, _part: int, _parts: int) -> None:
    """(failed, data, indices, out, size of an index, limit, count, offsets, step, words): elements of so many words of 4 bytes.

    ``offsets`` is where int64 are, one for each index: the element's place if the index is 0; each more is ``step`` elements on.
    """
    data, out, words = argument(record, 1), argument(record, 3), argument(record, 9)
    failed = 0
    for place in range(argument(record, 6)):
        element = _element(record, place)
        if element < 0:
            failed = 1
        else:
            _copy(out + place * words * 4, data + element * words * 4, words)
    write_i64(record, failed)


@task
def add_elements(record: int, _part: int, _parts: int) -> None:
    """(failed, out, indices, updates, size of an index, limit, count, offsets, step): float32 added to elements, in order.

    ``offsets`` and ``step`` are those of :func:`take_elements`.
    """
    out, updates = argument(record, 1), argument(record, 3)
    failed = 0
    for place in range(argument(record, 6)):
        element = _element(record, place)
        if element < 0:
            failed = 1
        else:
            target = out + element * 4
            write_f32(target, read_f32(target) + read_f32(updates + place * 4))
    write_i64(record, failed)


@task
def put_elements(record: int, _part: int, _parts: int) -> None:
    """(failed, out, indices, updates, size of an index, limit, count, offsets, step, words): elements of words of 4 bytes put in.

    ``offsets`` and ``step`` are those of :func:`take_elements`.
    """
    out, updates, words = argument(record, 1), argument(record, 3), argument(record, 9)
    failed = 0
    for place in range(argument(record, 6)):
        element = _element(record, place)
        if element < 0:
            failed = 1
        else:
            _copy(out + element * words * 4, updates + place * words * 4, words)
    write_i64(record, failed)


@task
def one_hot(record: int, _part: int, _parts: int) -> None:
    """(indices, values, out, size of an index, depth, count, words): rows of as many elements as the depth, of words of 4 bytes.

    Each element is the first of the two values, but the one at the row's index the second; none if that is out of range.
    """
    indices, values, out = argument(record, 0), argument(record, 1), argument(record, 2)
    size, depth, words = argument(record, 3), argument(record, 4), argument(record, 6)
    for place in range(argument(record, 5)):
        row = out + place * depth * words * 4
        for element in range(0, depth, 16 if words == 1 else 1):
            if words == 1:
                store_f32_first(row + element * 4, splat_f32(read_f32(values)), depth - element)
            else:
                _copy(row + element * words * 4, values, words)
        index = _index(indices + place * size, size, depth)
        if index >= 0:
            _copy(row + index * words * 4, values + words * 4, words)


@operation(i32x16, f32x16, f32x16, i32x16, i32x16)
def _place_of_larger(builder: Any, best: Any, value: Any, place: Any, other: Any) -> Any:
    """The other place where the value is larger than the best, or the first NaN."""
    is_larger = builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", best, best))
    return builder.select(is_larger, other, place)


@operation(types.none, types.intp, i32x16)
def _store_places(builder: Any, address: Any, places: Any) -> None:
    """Write them as int64."""
    emit_store(builder, address, builder.sext(places, ir.VectorType(ir.IntType(64), LANES)))


@inner
def _find_one(x: int, step: int, count: int, factor: float, out: int) -> None:
    best, place = read_f32(x) * factor, 0
    for other in range(1, count):
        value = read_f32(x + other * step) * factor
        if value > best or (math.isnan(value) and not math.isnan(best)):
            best, place = value, other
    write_i64(out, place)


@inner
def _find_16(x: int, step: int, count: int, factor: float, out: int) -> None:
    factors = splat_f32(factor)
    best, places = multiply(load_f32(x), factors), zero_i32()
    for other in range(1, count):
        value = multiply(load_f32(x + other * step), factors)
        places = _place_of_larger(best, value, places, splat_i32(other))
        best = maximum_or_nan(best, value)
    _store_places(out, places)


@task
def largest_along(record: int, part: int, parts: int) -> None:
    """(x, out, before, count, behind, factor): where the largest of ``count`` float32 times ``factor`` is, the first, as int64.

    x is (before, count, behind), out (before, behind). NaN is larger than any number.
    """
    x, out, behind = argument(record, 0), argument(record, 1), argument(record, 4)
    count, factor = argument(record, 3), number(record, 5)
    groups = (behind + 15) // 16
    jobs = argument(record, 2) * groups
    for job in range(jobs * part // parts, jobs * (part + 1) // parts):
        block, first = job // groups, job % groups * 16
        source, target = x + (block * count * behind + first) * 4, out + (block * behind + first) * 8
        if first + 16 <= behind:
            _find_16(source, behind * 4, count, factor, target)
            continue
        for column in range(behind - first):
            _find_one(source + column * 4, behind * 4, count, factor, target + column * 8)


@inner
def _slice_of(tuple_: int, size: int, depth: int, table: int) -> int:
    """Which slice a tuple names; -1 if it is out of range. The table has the limit and the step of each index."""
    found, is_inside = 0, True
    for place in range(depth):
        index, limit = _given(tuple_ + place * size, size), read_i64(table + place * 16)
        if index < 0:
            index += limit
        if index < 0 or index >= limit:
            is_inside = False
        found += index * read_i64(table + place * 16 + 8)
    return found if is_inside else -1


@inner
def _combine(reduction: int, target: int, source: int, count: int) -> None:
    """Put float32 to those that are there: add, multiply, or keep the largest or least; NaN is both."""
    for element in range(count):
        here, given = read_f32(target + element * 4), read_f32(source + element * 4)
        if reduction == _ADD:
            here += given
        elif reduction == _MULTIPLY:
            here *= given
        elif (given > here if reduction == _LARGEST else given < here) or math.isnan(given):
            here = given
        write_f32(target + element * 4, here)


@task
def put_slices(record: int, _part: int, parts: int) -> None:
    """(failed, out, indices, updates, size of an index, depth, count, words, table, reduction): slices of words of 4 bytes.

    ``reduction`` is 0 to put them, else how they are combined with what is there, as float32. The table has the limit and the
    step, in slices, of each index of a tuple.
    """
    out, indices, updates, size = argument(record, 1), argument(record, 2), argument(record, 3), argument(record, 4)
    depth, words, table, reduction = argument(record, 5), argument(record, 7), argument(record, 8), argument(record, 9)
    failed = 0
    for place in range(argument(record, 6)):
        found = _slice_of(indices + place * depth * size, size, depth, table)
        source, target = updates + place * words * 4, out + found * words * 4
        if found < 0:
            failed = 1
        elif reduction:
            _combine(reduction, target, source, words)
        elif words == 1:
            write_f32(target, read_f32(source))
        else:
            _copy(target, source, words)
    _report(record, parts, failed)


@task
def take_tuples(record: int, part: int, parts: int) -> None:
    """(failed, data, indices, out, size of an index, depth, count, words, table, batch, slices): slices of words of 4 bytes.

    Each ``batch`` tuples are of the next ``slices`` slices of the data; the table is that of :func:`put_slices`.
    """
    data, indices, out, size = argument(record, 1), argument(record, 2), argument(record, 3), argument(record, 4)
    depth, count, words, table = argument(record, 5), argument(record, 6), argument(record, 7), argument(record, 8)
    batch, slices = argument(record, 9), argument(record, 10)
    failed = 0
    for place in range(count * part // parts, count * (part + 1) // parts):
        found = _slice_of(indices + place * depth * size, size, depth, table)
        if found < 0:
            failed = 1
            continue
        source, target = data + (place // batch * slices + found) * words * 4, out + place * words * 4
        if words == 1:
            write_f32(target, read_f32(source))
        else:
            _copy(target, source, words)
    _report(record, parts, failed)


@inner
def _take_row(data: int, indices: int, out: int, size: int, limit: int, step: int, count: int, words: int) -> int:
    """Elements of a row, each ``step`` further in the data than the one before; whether one is out of range."""
    if limit < 1:
        return 1 if count else 0
    failed = 0
    for place in range(count):
        index = _given(indices + place * size, size)
        if index < 0:
            index += limit
        if index < 0 or index >= limit:
            failed, index = 1, 0
        source = data + (index * step + (place if step > 1 else 0)) * words * 4
        if words == 1:
            write_f32(out + place * 4, read_f32(source))
        else:
            write_i64(out + place * 8, read_i64(source))
    return failed


@task
def take_along(record: int, part: int, parts: int) -> None:
    """(failed, data, indices, out, size of an index, outer, limit, count, inner, words): elements of one word of 4 bytes, or two.

    Data is (outer, limit, inner), indices and out are (outer, count, inner): each names an element of its own column.
    """
    data, indices, out, size = argument(record, 1), argument(record, 2), argument(record, 3), argument(record, 4)
    outer, limit, count, inner = argument(record, 5), argument(record, 6), argument(record, 7), argument(record, 8)
    words, failed = argument(record, 9), 0
    if inner == 1:
        for row in range(outer * part // parts, outer * (part + 1) // parts):
            places = (data + row * limit * words * 4, indices + row * count * size, out + row * count * words * 4)
            failed |= _take_row(*places, size, limit, 1, count, words)
    else:
        rows = outer * count
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            start = row * inner
            places = (data + row // count * limit * inner * words * 4, indices + start * size, out + start * words * 4)
            failed |= _take_row(*places, size, limit, inner, inner, words)
    _report(record, parts, failed)


@task
def reverse_rows(record: int, _part: int, parts: int) -> None:
    """(failed, x, lengths, out, times, batches, time step, batch step, words): rows of words of 4 bytes.

    The first ones of each batch, as many as its length (int64) says, are written backwards. Steps are in rows.
    """
    x, lengths, out = argument(record, 1), argument(record, 2), argument(record, 3)
    times, time_step, batch_step, words = argument(record, 4), argument(record, 6), argument(record, 7), argument(record, 8)
    failed = 0
    for batch in range(argument(record, 5)):
        length = read_i64(lengths + batch * 8)
        if length < 0 or length > times:
            failed = 1
            continue
        for time in range(times):
            source = length - 1 - time if time < length else time
            first = batch * batch_step
            _copy(out + (first + time * time_step) * words * 4, x + (first + source * time_step) * words * 4, words)
    _report(record, parts, failed)
