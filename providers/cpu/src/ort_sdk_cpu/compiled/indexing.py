"""Elements at places that are known when they are read, and the places of the largest.

Each task's first argument becomes 1 where an index is out of range, and nothing is read there.
"""

from __future__ import annotations

import math
from typing import Any

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.memory import load_f32_first, read_f32, read_i32, read_i64, store_f32_first, write_f32, write_i64
from ort_sdk_cpu.simd.records import argument, number

__all__ = ["add_elements", "largest_along", "take_elements", "take_slices"]


@inner
def _index(address: int, size: int, limit: int) -> Any:
    """An index of 4 or 8 bytes, counted from the front; -1 if it is out of range."""
    found = read_i64(address) if size == 8 else int(read_i32(address))
    if found < 0:
        found += limit
    return found if 0 <= found < limit else -1


@inner
def _copy(target: int, source: int, words: int) -> None:
    for word in range(0, words, 16):
        store_f32_first(target + word * 4, load_f32_first(source + word * 4, words - word), words - word)


@task
def take_slices(record: int, _part: int, _parts: int) -> None:
    """(failed, data, indices, out, size of an index, limit, count, before, words, stride): slices of so many words of 4 bytes.

    ``before`` is how often ``limit`` slices follow each other, of which ``count`` are taken; from an index to the next are
    ``stride`` bytes.
    """
    data, indices, out = argument(record, 1), argument(record, 2), argument(record, 3)
    size, limit, count = argument(record, 4), argument(record, 5), argument(record, 6)
    words, stride = argument(record, 8), argument(record, 9)
    failed = 0
    for block in range(argument(record, 7)):
        for place in range(count):
            index = _index(indices + place * stride, size, limit)
            if index < 0:
                failed = 1
            else:
                _copy(out, data + (block * limit + index) * words * 4, words)
            out += words * 4
    write_i64(record, failed)


@task
def take_elements(record: int, _part: int, _parts: int) -> None:
    """(failed, data, indices, out, size of an index, limit, count, offsets, step, words): elements of so many words of 4 bytes.

    ``offsets`` is where int64 are, one for each index: the element's place if the index is 0; each more is ``step`` elements on.
    """
    data, indices, out = argument(record, 1), argument(record, 2), argument(record, 3)
    size, limit, offsets = argument(record, 4), argument(record, 5), argument(record, 7)
    step, words = argument(record, 8), argument(record, 9)
    failed = 0
    for place in range(argument(record, 6)):
        index = _index(indices + place * size, size, limit)
        if index < 0:
            failed = 1
        else:
            _copy(out + place * words * 4, data + (read_i64(offsets + place * 8) + index * step) * words * 4, words)
    write_i64(record, failed)


@task
def add_elements(record: int, _part: int, _parts: int) -> None:
    """(failed, out, indices, updates, size of an index, limit, count, offsets, step): float32 added to elements, in order.

    ``offsets`` and ``step`` are those of :func:`take_elements`.
    """
    out, indices, updates = argument(record, 1), argument(record, 2), argument(record, 3)
    size, limit, offsets, step = argument(record, 4), argument(record, 5), argument(record, 7), argument(record, 8)
    failed = 0
    for place in range(argument(record, 6)):
        index = _index(indices + place * size, size, limit)
        if index < 0:
            failed = 1
        else:
            target = out + (read_i64(offsets + place * 8) + index * step) * 4
            write_f32(target, read_f32(target) + read_f32(updates + place * 4))
    write_i64(record, failed)


@task
def largest_along(record: int, _part: int, _parts: int) -> None:
    """(x, out, before, count, behind, factor): where the largest of ``count`` float32 times ``factor`` is, the first, as int64.

    x is (before, count, behind), out (before, behind). NaN is larger than any number.
    """
    x, out, behind = argument(record, 0), argument(record, 1), argument(record, 4)
    count, factor = argument(record, 3), number(record, 5)
    for block in range(argument(record, 2)):
        for column in range(behind):
            start = x + (block * count * behind + column) * 4
            best, place = read_f32(start) * factor, 0
            for other in range(1, count):
                value = read_f32(start + other * behind * 4) * factor
                if value > best or (math.isnan(value) and not math.isnan(best)):
                    best, place = value, other
            write_i64(out + (block * behind + column) * 8, place)
