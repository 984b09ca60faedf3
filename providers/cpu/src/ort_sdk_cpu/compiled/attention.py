"""Attention over heads: softmax(scale * Q K' + mask) V in one pass over the keys, for 32 queries at a time.

Queries are lanes: keys and values are read where they are and broadcast, and the softmax needs no sums across lanes. The keys
come in blocks whose scores stay in the nearest cache; the result is rescaled when a block raises the largest score.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit import inner
from ort_sdk_cpu.machine_code import task
from ort_sdk_cpu.simd.arithmetic import add, divide, fused_multiply_add, maximum, multiply, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.functions import exp_of_negative
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, store_f32
from ort_sdk_cpu.simd.records import argument, number
from ort_sdk_cpu.simd.rests import load_f32_steps, store_f32_steps

__all__ = ["attention"]

_BLOCK = 128
"""Keys at a time."""
_ROW = 128
"""Bytes of 32 queries."""
_LOWEST = np.float32(-3.4e38)
_ZERO = np.float32(0)


@inner
def _pack_queries(q: int, step: int, count: int, size: int, bias: int, factor: float, packed: int) -> None:
    """(q + bias) * factor as (size, 32); queries that are not there are copies of the last."""
    for element in range(size):
        shift = broadcast_f32(bias + element * 4) if bias else zero_f32()
        first = load_f32_steps(q + element * 4, step, min(count, 16))
        second = load_f32_steps(q + 16 * step + element * 4, step, count - 16) if count > 16 else first
        store_f32(packed + element * _ROW, multiply(add(first, shift), splat_f32(factor)))
        store_f32(packed + element * _ROW + 64, multiply(add(second, shift), splat_f32(factor)))


@inner
def _scores_of_four(k: int, step: int, size: int, packed: int, scores: int) -> None:
    """Products of four keys, ``step`` bytes apart, with all queries."""
    a0, a1, a2, a3 = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    b0, b1, b2, b3 = zero_f32(), zero_f32(), zero_f32(), zero_f32()
    for element in range(size):
        first, second = load_f32(packed + element * _ROW), load_f32(packed + element * _ROW + 64)
        place = k + element * 4
        x = broadcast_f32(place)
        a0, b0 = fused_multiply_add(first, x, a0), fused_multiply_add(second, x, b0)
        x = broadcast_f32(place + step)
        a1, b1 = fused_multiply_add(first, x, a1), fused_multiply_add(second, x, b1)
        x = broadcast_f32(place + 2 * step)
        a2, b2 = fused_multiply_add(first, x, a2), fused_multiply_add(second, x, b2)
        x = broadcast_f32(place + 3 * step)
        a3, b3 = fused_multiply_add(first, x, a3), fused_multiply_add(second, x, b3)
    _store_pair(scores, a0, b0)
    _store_pair(scores + _ROW, a1, b1)
    _store_pair(scores + 2 * _ROW, a2, b2)
    _store_pair(scores + 3 * _ROW, a3, b3)


@inner
def _store_pair(place: int, first: Any, second: Any) -> None:
    store_f32(place, first)
    store_f32(place + 64, second)


@inner
def _scores(k: int, step: int, count: int, size: int, packed: int, scores: int) -> None:
    """Scores of a block of keys as (keys, 32). The last keys are done together with some before them."""
    if count < 4:
        for key in range(count):
            _scores_of_four(k + key * step, 0, size, packed, scores + key * _ROW)
        return
    for key in range(0, count - 3, 4):
        _scores_of_four(k + key * step, step, size, packed, scores + key * _ROW)
    if count % 4:
        _scores_of_four(k + (count - 4) * step, step, size, packed, scores + (count - 4) * _ROW)


@inner
def _add_mask(mask: int, query_step: int, key_step: int, queries: int, keys: int, scores: int) -> None:
    """Add a mask's number for each query and key."""
    for key in range(keys):
        place, row = mask + key * key_step, scores + key * _ROW
        if query_step:
            first = load_f32_steps(place, query_step, min(queries, 16))
            second = load_f32_steps(place + 16 * query_step, query_step, queries - 16) if queries > 16 else first
        else:
            first = broadcast_f32(place)
            second = first
        _store_pair(row, add(load_f32(row), first), add(load_f32(row + 64), second))


@inner
def _softmax(scores: int, keys: int, state: int, half: int) -> Any:
    """Powers of a block's scores for 16 queries; returns by what earlier results shrink. State: largest scores, then sums."""
    before = load_f32(state + half)
    largest = before
    for row in range(scores + half, scores + half + keys * _ROW, _ROW):
        largest = maximum(load_f32(row), largest)
    shrink, total = exp_of_negative(subtract(before, largest)), zero_f32()
    for row in range(scores + half, scores + half + keys * _ROW, _ROW):
        power = exp_of_negative(subtract(load_f32(row), largest))
        total = add(total, power)
        store_f32(row, power)
    store_f32(state + half, largest)
    store_f32(state + _ROW + half, fused_multiply_add(load_f32(state + _ROW + half), shrink, total))
    return shrink


@inner
def _values_of_four(v: int, step: int, keys: int, powers: int, result: int, first_shrink: Any, second_shrink: Any) -> None:
    """Weighted sums of four elements of the values, added to what there is."""
    a0, b0 = multiply(load_f32(result), first_shrink), multiply(load_f32(result + 64), second_shrink)
    a1, b1 = multiply(load_f32(result + _ROW), first_shrink), multiply(load_f32(result + _ROW + 64), second_shrink)
    a2, b2 = multiply(load_f32(result + 2 * _ROW), first_shrink), multiply(load_f32(result + 2 * _ROW + 64), second_shrink)
    a3, b3 = multiply(load_f32(result + 3 * _ROW), first_shrink), multiply(load_f32(result + 3 * _ROW + 64), second_shrink)
    for key in range(keys):
        first, second = load_f32(powers + key * _ROW), load_f32(powers + key * _ROW + 64)
        place = v + key * step
        x = broadcast_f32(place)
        a0, b0 = fused_multiply_add(first, x, a0), fused_multiply_add(second, x, b0)
        x = broadcast_f32(place + 4)
        a1, b1 = fused_multiply_add(first, x, a1), fused_multiply_add(second, x, b1)
        x = broadcast_f32(place + 8)
        a2, b2 = fused_multiply_add(first, x, a2), fused_multiply_add(second, x, b2)
        x = broadcast_f32(place + 12)
        a3, b3 = fused_multiply_add(first, x, a3), fused_multiply_add(second, x, b3)
    _store_pair(result, a0, b0)
    _store_pair(result + _ROW, a1, b1)
    _store_pair(result + 2 * _ROW, a2, b2)
    _store_pair(result + 3 * _ROW, a3, b3)


@inner
def _write(result: int, sums: int, size: int, bias: int, out: int, step: int, count: int) -> None:
    """The result over its sums, plus a bias, to its rows."""
    first_sum, second_sum = load_f32(sums), load_f32(sums + 64)
    for element in range(size):
        shift = broadcast_f32(bias + element * 4) if bias else zero_f32()
        row, place = result + element * _ROW, out + element * 4
        store_f32_steps(place, step, min(count, 16), add(divide(load_f32(row), first_sum), shift))
        if count > 16:
            store_f32_steps(place + 16 * step, step, count - 16, add(divide(load_f32(row + 64), second_sum), shift))


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
def _attend_block(record: int, batch: int, head: int, start: int, count: int, spare: int) -> None:
    keys, size, value_size = argument(record, 25), argument(record, 26), argument(record, 27)
    packed, scores = spare, spare + size * _ROW
    result, state = scores + _BLOCK * _ROW, scores + (_BLOCK + value_size) * _ROW
    q, q_step = _place(record, 0, batch, head, start), argument(record, 3)
    k, k_step = _place(record, 4, batch, head, 0), argument(record, 7)
    v, v_step = _place(record, 8, batch, head, 0), argument(record, 11)
    mask = _place(record, 16, batch, head, start)
    _pack_queries(q, q_step, count, size, _head_bias(record, 21, head, size), number(record, 28), packed)
    for place in range(result, state, 64):
        store_f32(place, zero_f32())
    _store_pair(state, splat_f32(_LOWEST), splat_f32(_LOWEST))
    _store_pair(state + _ROW, zero_f32(), zero_f32())
    for key in range(0, keys, _BLOCK):
        found = min(_BLOCK, keys - key)
        _scores(k + key * k_step, k_step, found, size, packed, scores)
        if mask:
            _add_mask(mask + key * argument(record, 20), argument(record, 19), argument(record, 20), count, found, scores)
        first_shrink, second_shrink = _softmax(scores, found, state, 0), _softmax(scores, found, state, 64)
        for element in range(0, value_size, 4):
            place = v + key * v_step + element * 4
            _values_of_four(place, v_step, found, scores, result + element * _ROW, first_shrink, second_shrink)
    out = _place(record, 12, batch, head, start)
    _write(result, state + _ROW, value_size, _head_bias(record, 22, head, value_size), out, argument(record, 15), count)


@task
def attention(record: int, part: int, parts: int) -> None:
    """Heads of a size and values of a size that is a multiple of 4.

    Arguments: addresses and steps in bytes along batch, heads and rows of queries, keys, values and result (0 to 15), and of
    the mask, with its step along keys (16 to 20; address 0: none); addresses of the biases of queries and values (heads * size,
    0: none); heads, queries, keys, size, value size (23 to 27), scale, batch, address and bytes of each part's working memory.
    """
    heads, length = argument(record, 23), argument(record, 24)
    blocks = (length + 31) // 32
    items = argument(record, 29) * heads * blocks
    spare = argument(record, 30) + part * argument(record, 31)
    for item in range(items * part // parts, items * (part + 1) // parts):
        start = item % blocks * 32
        head = item // blocks
        _attend_block(record, head // heads, head % heads, start, min(32, length - start), spare)
