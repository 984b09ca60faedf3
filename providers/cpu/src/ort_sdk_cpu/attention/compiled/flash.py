"""Attention over heads: softmax(scale * Q K' + mask) V in one pass over the keys, for 32 queries at a time.

Queries are lanes: keys and values are read where they are and broadcast, and the softmax needs no sums across lanes. The keys
come in blocks whose scores stay in the nearest cache; the result is rescaled when a block raises the largest score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.gemm.microkernels.sgemm import COLUMNS, ROWS, spread_tile
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import (
    add,
    differ,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    reduce_add,
    reduce_max,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_of_negative, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    load_i32_first,
    read_f32,
    store_f32,
    store_f32_first,
    write_f32,
)
from ort_sdk_cpu.simd.remainder import load_f32_first_or, load_f32_steps, select_less
from ort_sdk_cpu.simd.shuffles import transpose_rows

__all__ = ["attention"]

_BLOCK = 128
"""Keys at a time."""
_ROW = 128
"""Bytes of 32 queries."""
_TILE = 64 * COLUMNS
"""Bytes of the queries of a tile."""
_SUMMED = 8
"""Powers summed before their sum is added: fewer numbers are added one after the other, and less is rounded off."""
_SPARE = 2048
"""Bytes for what is transposed."""
_LOWEST, _HIDDEN = np.finfo(np.float32).min, np.float32(-np.inf)
_TINY = np.float32(1e-30)
"""Below the sum of any softmax: what sees nothing is divided by it."""
_HIDING = np.float32(-1000)
"""Beside the largest number added to scores, one that may hide a key."""
_FEWEST_HIDDEN = 8
"""Keys that are worth a look at how large scores are."""


@inner
def _pack_queries(q: int, step: int, count: int, size: int, bias: int, factor: float, packed: int, spare: int) -> None:
    """(q + bias) * factor as (size, 32); queries that are not there are copies of others."""
    factors = splat_f32(factor)
    for half in range(2):
        first = half * 16 if count > 16 else 0
        for element in range(0, size, 16):
            transpose_rows(q + first * step + element * 4, step, min(count - first, 16), size - element, spare)
            for index in range(element, min(element + 16, size)):
                shift = broadcast_f32(bias + index * 4) if bias else zero_f32()
                value = multiply(add(load_f32(spare + (index - element) * 64), shift), factors)
                store_f32(packed + index * _ROW + half * 64, value)


@inner
def _products(count: int, x: int, x_row: int, x_step: int, b: int, steps: int, target: int, is_first: int) -> None:
    """Add to each of some rows of the target the sum, over steps, of one of its numbers times the step's 32 of b."""
    tiles = (count + ROWS - 1) // ROWS
    for index in range(tiles):
        first = count * index // tiles
        rows, place = count * (index + 1) // tiles - first, target + first * _ROW
        for part in range(0, _ROW, _TILE):
            spread_tile(rows, b + part, _ROW, x + first * x_row, x_row, x_step, steps, place + part, _ROW, is_first)


@inner
def _add_vectors(place: int, first: Any, second: Any) -> None:
    store_f32(place, add(load_f32(place), first))
    store_f32(place + 64, add(load_f32(place + 64), second))


@inner
def _add_same_mask(mask: int, key_step: int, keys: int, scores: int) -> None:
    """Add a mask's number for each key."""
    for key in range(keys):
        value = broadcast_f32(mask + key * key_step)
        _add_vectors(scores + key * _ROW, value, value)


@inner
def _add_spread_mask(mask: int, query_step: int, key_step: int, queries: int, keys: int, scores: int) -> None:
    """Add a mask's number for each query and key."""
    for key in range(keys):
        place = mask + key * key_step
        first = load_f32_steps(place, query_step, min(queries, 16))
        second = load_f32_steps(place + 16 * query_step, query_step, queries - 16) if queries > 16 else first
        _add_vectors(scores + key * _ROW, first, second)


@inner
def _add_rows_of_mask(mask: int, query_step: int, queries: int, keys: int, scores: int, spare: int) -> None:
    """The same, of a mask in which the numbers for all keys follow each other."""
    for key in range(0, keys, 16):
        place = mask + key * 4
        transpose_rows(place, query_step, min(queries, 16), keys - key, spare)
        if queries > 16:
            transpose_rows(place + 16 * query_step, query_step, queries - 16, keys - key, spare + 1024)
        second = spare + 1024 if queries > 16 else spare
        for index in range(min(16, keys - key)):
            _add_vectors(scores + (key + index) * _ROW, load_f32(spare + index * 64), load_f32(second + index * 64))


@inner
def _cap(scores: int, keys: int, cap: float) -> None:
    """Scores within a cap of either sign."""
    caps = splat_f32(cap)
    for place in range(scores, scores + keys * _ROW, 64):
        store_f32(place, multiply(tanh(divide(load_f32(place), caps)), caps))


@inner
def _hide(scores: int, keys: int, distance: int, left: int, right: int, spare: int) -> None:
    """Hide keys that are too far from their query; the first is at a distance from the first query."""
    for query in range(32):
        write_f32(spare + query * 4, np.float32(query))
    hidden = splat_f32(_HIDDEN)
    for key in range(keys):
        place = splat_f32(np.float32(distance + key))
        for half in range(0, _ROW, 64):
            own, value = load_f32(spare + half), load_f32(scores + key * _ROW + half)
            if right >= 0:
                value = select_less(add(own, splat_f32(np.float32(right))), place, hidden, value)
            if left >= 0:
                value = select_less(place, subtract(own, splat_f32(np.float32(left))), hidden, value)
            store_f32(scores + key * _ROW + half, value)


@inner
def _power(place: int, largest: Any) -> Any:
    """The power of scores in their place."""
    power = exp_of_negative(subtract(load_f32(place), largest))
    store_f32(place, power)
    return power


@inner
def _softmax(scores: int, keys: int, state: int, half: int) -> Any:
    """Powers of a block's scores for 16 queries; returns by what earlier results shrink. State: largest scores, then sums."""
    before, start = load_f32(state + half), scores + half
    largest = before
    for row in range(start, start + keys * _ROW, _ROW):
        largest = maximum(load_f32(row), largest)
    shrink, total, whole = exp_of_negative(subtract(before, largest)), zero_f32(), start + keys // _SUMMED * _SUMMED * _ROW
    for first in range(start, whole, _SUMMED * _ROW):
        part = _power(first, largest)
        for row in range(first + _ROW, first + _SUMMED * _ROW, _ROW):
            part = add(part, _power(row, largest))
        total = add(total, part)
    for row in range(whole, start + keys * _ROW, _ROW):
        total = add(total, _power(row, largest))
    store_f32(state + half, largest)
    store_f32(state + _ROW + half, fused_multiply_add(load_f32(state + _ROW + half), shrink, total))
    return shrink


@inner
def _shrink(result: int, size: int, first: Any, second: Any) -> None:
    for row in range(result, result + size * _ROW, _ROW):
        store_f32(row, multiply(load_f32(row), first))
        store_f32(row + 64, multiply(load_f32(row + 64), second))


@inner
def _clear(result: int, size: int) -> None:
    for place in range(result, result + size * _ROW, 64):
        store_f32(place, zero_f32())


@inner
def _write(result: int, sums: int, size: int, bias: int, out: int, step: int, count: int, spare: int) -> None:
    """The result over its sums, plus a bias, to its rows."""
    for half in range(0, count, 16):
        total = maximum(load_f32(sums + half * 4), splat_f32(_TINY))
        for element in range(0, size, 16):
            found = min(16, size - element)
            for index in range(found):
                shift = broadcast_f32(bias + (element + index) * 4) if bias else zero_f32()
                value = divide(load_f32(result + (element + index) * _ROW + half * 4), total)
                store_f32(spare + index * 64, add(value, shift))
            transpose_rows(spare, 64, found, 16, spare + 1024)
            for row in range(min(16, count - half)):
                store_f32_first(out + (half + row) * step + element * 4, load_f32(spare + 1024 + row * 64), found)


@inner
def _place(record: int, position: int, batch: int, head: int, row: int) -> Any:
    """Address of a row: at ``position`` are base and steps along batch, heads and rows; 0 if the base is 0."""
    base = argument(record, position)
    steps = batch * argument(record, position + 1) + head * argument(record, position + 2) + row * argument(record, position + 3)
    return base + steps if base else base


@inner
def _head_bias(record: int, position: int, head: int, size: int) -> Any:
    base = argument(record, position)
    return base + head * size * 4 if base else base


@inner
def _rounded(size: int) -> Any:
    """A number of elements, as many as are transposed."""
    return (size + 15) // 16 * 16


@inner
def _first_and_last(record: int, batch: int, start: int, count: int) -> Any:
    """Position of a query, and from where to where a block of queries sees keys."""
    counts, keys, left, right = argument(record, 33), argument(record, 25), argument(record, 34), argument(record, 35)
    if not counts:
        return 0, 0, keys
    position, keys = argument(counts, batch * 3 + 1) + start, argument(counts, batch * 3 + 2)
    low = max(0, position - left) if left >= 0 else 0
    return position, low, min(keys, position + count + right) if right >= 0 else keys


@inner
def _begin(record: int, head: int, state: int) -> None:
    """Largest scores and sums before any key."""
    sinks = argument(record, 36)
    for half in range(0, _ROW, 64):
        store_f32(state + half, broadcast_f32(sinks + head * 4) if sinks else splat_f32(_LOWEST))
        store_f32(state + _ROW + half, splat_f32(np.float32(1)) if sinks else zero_f32())


@inner
def _add_mask(record: int, place: int, query_step: int, count: int, found: int, scores: int, spare: int) -> None:
    key_step = argument(record, 20)
    if not query_step:
        _add_same_mask(place, key_step, found, scores)
    elif key_step == 4:
        _add_rows_of_mask(place, query_step, count, found, scores, spare)
    else:
        _add_spread_mask(place, query_step, key_step, count, found, scores)


@inner
def _hidden_behind(mask: int, key_step: int, keys: int) -> Any:
    """(keys up to the last that is not hidden, by how much those behind it are lower than the largest); all if few are hidden."""
    if key_step != 4:
        return keys, np.float32(0)
    lowest = splat_f32(_HIDDEN)
    vector = lowest
    for key in range(0, keys, 16):
        vector = maximum(load_f32_first_or(mask + key * 4, keys - key, lowest), vector)
    largest, seen, hidden = reduce_max(vector), keys, _HIDDEN
    while seen > 0 and read_f32(mask + seen * 4 - 4) <= largest + _HIDING:
        seen -= 1
        hidden = max(hidden, read_f32(mask + seen * 4))
    if keys - seen < _FEWEST_HIDDEN:
        return keys, np.float32(0)
    return seen, largest - hidden


@inner
def _sum_of_squares(place: int, step: int, rows: int, size: int) -> Any:
    first, second = zero_f32(), zero_f32()
    for row in range(place, place + rows * step, step):
        for element in range(0, size, 32):
            here = load_f32_first(row + element * 4, size - element)
            first = fused_multiply_add(here, here, first)
            if size - element > 16:
                there = load_f32_first(row + element * 4 + 64, size - element - 16)
                second = fused_multiply_add(there, there, second)
    return reduce_add(add(first, second))


@inner
def _square_of_distance(record: int, batch: int, head: int, seen: int) -> Any:
    """Of a head, the squares of its keys' numbers; NaN if a hidden value is not finite, for which 0 times it is not 0."""
    shared, keys = head // argument(record, 32), argument(record, 25)
    k, v, v_step = _place(record, 4, batch, shared, 0), _place(record, 8, batch, shared, 0), argument(record, 11)
    values = _sum_of_squares(v + seen * v_step, v_step, keys - seen, argument(record, 27))
    return _sum_of_squares(k, argument(record, 7), keys, argument(record, 26)) + values * np.float32(0)


@inner
def _attend_block(
    record: int, batch: int, head: int, start: int, count: int, spare: int, query_step: int, seen: int, squares: float
) -> None:
    size, value_size, left, right = argument(record, 26), argument(record, 27), argument(record, 34), argument(record, 35)
    packed, scores = spare + _SPARE, spare + _SPARE + size * _ROW
    result, state = scores + _BLOCK * _ROW, scores + (_BLOCK + value_size) * _ROW
    shared = head // argument(record, 32)
    k, k_step = _place(record, 4, batch, shared, 0), argument(record, 7)
    v, v_step = _place(record, 8, batch, shared, 0), argument(record, 11)
    q, mask = _place(record, 0, batch, head, start), _place(record, 16, batch, head, start)
    bias, factor, cap = _head_bias(record, 21, head, size), number(record, 28), number(record, 37)
    _pack_queries(q, argument(record, 3), count, size, bias, factor, packed, spare)
    _begin(record, head, state)
    position, low, high = _first_and_last(record, batch, start, count)
    # No score is larger than the product of the lengths of a query and a key: hidden keys' powers are 0 if that is little.
    if squares >= np.float32(0) and _sum_of_squares(packed, _ROW, size, 32) * squares < np.float32(1):
        high = min(high, seen)
    if high <= low:
        _clear(result, value_size)
    for key in range(low, high, _BLOCK):
        found = min(_BLOCK, high - key)
        _products(found, k + key * k_step, k_step, 4, packed, size, scores, 1)
        if cap > 0:
            _cap(scores, found, cap)
        if mask:
            _add_mask(record, mask + key * argument(record, 20), query_step, count, found, scores, spare)
        if (right >= 0 and key + found > position + right + 1) or (left >= 0 and key < position + count - 1 - left):
            _hide(scores, found, key - position, left, right, spare)
        first, second = _softmax(scores, found, state, 0), _softmax(scores, found, state, 64)
        if key > low:
            _shrink(result, value_size, first, second)
        _products(value_size, v + key * v_step, 4, v_step, scores, found, result, int(key == low))
    out = _place(record, 12, batch, head, start)
    bias = _head_bias(record, 22, head, value_size)
    _write(result, state + _ROW, value_size, bias, out, argument(record, 15), count, spare)


@inner
def _query_step(record: int, mask: int) -> Any:
    """Bytes from query to query of a mask; 0 if the numbers are the same for all queries."""
    queries, keys, step, key_step = argument(record, 24), argument(record, 25), argument(record, 19), argument(record, 20)
    if key_step != 4:
        return step
    for query in range(1, queries):
        for key in range(0, keys, 16):
            place, left = mask + key * 4, keys - key
            if differ(load_i32_first(place, left), load_i32_first(place + query * step, left)):
                return step
    return 0


@task
def attention(record: int, part: int, parts: int) -> None:
    """Heads of a size, and values of another.

    Arguments: addresses and steps in bytes along batch, heads and rows of queries, keys, values and result (0 to 15), and of
    the mask, with its step along keys (16 to 20; address 0: none); addresses of the biases of queries and values (heads * size,
    0: none); heads, queries, keys, size, value size (23 to 27), scale, batch, address and bytes of each part's working memory;
    heads that share one of keys (32); address of int64 (batch, 3), the second of which is the position of the first query, and
    the third the number of keys (0: no limits); positions a query sees before and behind its own (-1: all); address of numbers
    of heads that take part in their softmaxes (0: none); the cap of scores (0: none).
    """
    heads, length = argument(record, 23), argument(record, 24)
    blocks = (length + 31) // 32
    items = argument(record, 29) * heads * blocks
    spare = argument(record, 30) + part * argument(record, 31)
    sees_all = not argument(record, 33) and argument(record, 34) < 0 and argument(record, 35) < 0
    met, query_step, seen, lower, squares = 0, 0, 0, np.float32(0), np.float32(np.nan)
    for item in range(items * part // parts, items * (part + 1) // parts):
        start = item % blocks * 32
        batch, head = item // blocks // heads, item // blocks % heads
        mask = _place(record, 16, batch, head, 0)
        is_first = item == items * part // parts
        if mask and (is_first or mask != met):
            met, query_step, seen, lower = mask, _query_step(record, mask), argument(record, 25), np.float32(0)
            if not query_step and sees_all:
                seen, lower = _hidden_behind(mask, argument(record, 20), seen)
        if lower > 0 and (is_first or start == 0):
            squares = _square_of_distance(record, batch, head, seen) * (np.float32(3) / lower) ** 2
        _attend_block(record, batch, head, start, min(32, length - start), spare, query_step, seen, squares)
