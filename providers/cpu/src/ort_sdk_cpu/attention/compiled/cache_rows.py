"""Rows of a key-value cache: new keys and values are put behind past ones, rotated or not, and queries rotated.

Arguments are those of ``compiled.decode``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, multiply, splat_f32, subtract, zero_f32
from ort_sdk_cpu.simd.memory import load_f32_first, load_i32, read_f32, store_f32, store_f32_first, store_i32, write_f32
from ort_sdk_cpu.simd.shuffles import even_lanes, interleave_high, interleave_low, odd_lanes

__all__ = [
    "BATCH",
    "BIASES",
    "CAPACITY",
    "ENDED",
    "FILLS",
    "GROUP",
    "HAS_CACHE",
    "IS_IN_PLACE",
    "KEYS",
    "KEY_HEADS",
    "LEFT",
    "LENGTH",
    "MASK",
    "NEW",
    "ONE",
    "OUT",
    "PART_BYTES",
    "PAST_K",
    "PAST_ROWS",
    "PAST_V",
    "RIGHT",
    "ROTATED",
    "SCALE",
    "SINKS",
    "SIZE",
    "SOFTCAP",
    "VALUES",
    "VALUE_SIZE",
    "WORK",
    "K",
    "Q",
    "V",
    "at",
    "clear",
    "copy",
    "copy_past",
    "keys_of",
    "position_of",
    "put_new",
    "put_row",
    "rotate_queries",
    "start_of",
]

Q, K, V, PAST_K, PAST_V, KEYS, VALUES, OUT, MASK, BIASES = 0, 4, 8, 12, 15, 18, 22, 26, 30, 35
_COS, _SIN, _ROTARY_ROW, _PAIRS, _IS_INTERLEAVED, _IDS, _ROTARY_ROWS, _COUNTS, SINKS = 38, 39, 40, 41, 42, 43, 44, 45, 46
BATCH, KEY_HEADS, GROUP, LENGTH, SIZE, VALUE_SIZE, LEFT, RIGHT = 47, 48, 49, 50, 51, 52, 53, 54
PAST_ROWS, CAPACITY, HAS_CACHE, IS_IN_PLACE, ENDED, FILLS, WORK, PART_BYTES, ROTATED = 55, 56, 57, 58, 59, 60, 61, 62, 63
SCALE, SOFTCAP, NEW, _MOST_KEYS = 64, 65, 66, 67

ONE = np.float32(1)


@inner
def at(record: int, position: int, batch: int, head: int, row: int) -> Any:
    """Address of a row: at ``position`` are base and steps along batch, heads and rows."""
    steps = batch * argument(record, position + 1) + head * argument(record, position + 2) + row * argument(record, position + 3)
    return argument(record, position) + steps


@inner
def _count(record: int, batch: int, index: int) -> Any:
    """Not below 0: what is read at run time says where memory is touched."""
    return max(0, argument(argument(record, _COUNTS), batch * 3 + index))


@inner
def start_of(record: int, batch: int) -> Any:
    """Row of the first new key of a sequence."""
    return min(_count(record, batch, 0), argument(record, CAPACITY))


@inner
def position_of(record: int, batch: int) -> Any:
    """Position of the first query of a sequence."""
    return _count(record, batch, 1)


@inner
def keys_of(record: int, batch: int) -> Any:
    """Keys of a sequence."""
    return min(_count(record, batch, 2), argument(record, _MOST_KEYS))


@inner
def _biased(x: int, bias: int, element: int, left: int) -> Any:
    value = load_f32_first(x + element * 4, left)
    return add(value, load_f32_first(bias + element * 4, left)) if bias else value


@inner
def _turn_neighbours(x: int, bias: int, factors: Any, cos: int, sin: int, pairs: int, out: int) -> None:
    for pair in range(0, pairs, 16):
        left = 2 * (pairs - pair)
        low, high = _biased(x, bias, 2 * pair, left), _biased(x, bias, 2 * pair + 16, left - 16)
        first, second = multiply(even_lanes(low, high), factors), multiply(odd_lanes(low, high), factors)
        c, s = load_f32_first(cos + pair * 4, pairs - pair), load_f32_first(sin + pair * 4, pairs - pair)
        real = subtract(multiply(first, c), multiply(second, s))
        imaginary = fused_multiply_add(first, s, multiply(second, c))
        store_f32_first(out + pair * 8, interleave_low(real, imaginary), left)
        store_f32_first(out + pair * 8 + 64, interleave_high(real, imaginary), left - 16)


@inner
def _turn_halves(x: int, bias: int, factors: Any, cos: int, sin: int, pairs: int, out: int) -> None:
    for pair in range(0, pairs, 16):
        left = pairs - pair
        first = multiply(_biased(x, bias, pair, left), factors)
        second = multiply(load_f32_first(x + (pairs + pair) * 4, left), factors)
        if bias:
            second = fused_multiply_add(load_f32_first(bias + (pairs + pair) * 4, left), factors, second)
        c, s = load_f32_first(cos + pair * 4, left), load_f32_first(sin + pair * 4, left)
        store_f32_first(out + pair * 4, subtract(multiply(first, c), multiply(second, s)), left)
        store_f32_first(out + (pairs + pair) * 4, fused_multiply_add(first, s, multiply(second, c)), left)


@inner
def put_row(record: int, batch: int, token: int, x: int, bias: int, size: int, factor: float, out: int) -> None:
    """(x + bias) * factor, rotated by the token's position."""
    factors, pairs = splat_f32(factor), argument(record, _PAIRS)
    if pairs:
        ids = argument(record, _IDS)
        row = argument(ids, batch * argument(record, LENGTH) + token) if ids else position_of(record, batch) + token
        offset = min(row, argument(record, _ROTARY_ROWS) - 1) * argument(record, _ROTARY_ROW)
        cos, sin = argument(record, _COS) + offset, argument(record, _SIN) + offset
        if argument(record, _IS_INTERLEAVED):
            _turn_neighbours(x, bias, factors, cos, sin, pairs, out)
        else:
            _turn_halves(x, bias, factors, cos, sin, pairs, out)
    for element in range(2 * pairs, size, 16):
        store_f32_first(out + element * 4, multiply(_biased(x, bias, element, size - element), factors), size - element)


@inner
def copy(source: int, target: int, nbytes: int) -> None:
    """Copy bytes, a multiple of 4."""
    whole = nbytes // 64 * 64
    for place in range(0, whole, 64):
        store_i32(target + place, load_i32(source + place))
    for place in range(whole, nbytes, 4):
        write_f32(target + place, read_f32(source + place))


@inner
def clear(target: int, nbytes: int) -> None:
    """Make bytes 0, a multiple of 4."""
    whole = nbytes // 64 * 64
    for place in range(0, whole, 64):
        store_f32(target + place, zero_f32())
    for place in range(whole, nbytes, 4):
        write_f32(target + place, np.float32(0))


@inner
def copy_past(record: int, batch: int, head: int, first: int, stop: int) -> None:
    """Rows of the past to the cache."""
    k_row, v_row = argument(record, SIZE) * 4, argument(record, VALUE_SIZE) * 4
    k = argument(record, PAST_K) + batch * argument(record, PAST_K + 1) + head * argument(record, PAST_K + 2)
    v = argument(record, PAST_V) + batch * argument(record, PAST_V + 1) + head * argument(record, PAST_V + 2)
    if stop > first:
        copy(k + first * k_row, at(record, KEYS, batch, head, first), (stop - first) * k_row)
        copy(v + first * v_row, at(record, VALUES, batch, head, first), (stop - first) * v_row)


@inner
def put_new(record: int, batch: int, head: int) -> None:
    """The new rows of a head to the cache, and what is behind them."""
    size, value_size, length = argument(record, SIZE), argument(record, VALUE_SIZE), argument(record, NEW)
    start, capacity = start_of(record, batch), argument(record, CAPACITY)
    k_bias, v_bias = argument(record, BIASES + 1), argument(record, BIASES + 2)
    k_bias, v_bias = k_bias + head * size * 4 if k_bias else 0, v_bias + head * value_size * 4 if v_bias else 0
    for token in range(min(length, capacity - start)):
        k, v = at(record, K, batch, head, token), at(record, V, batch, head, token)
        put_row(record, batch, token, k, k_bias, size, ONE, at(record, KEYS, batch, head, start + token))
        out = at(record, VALUES, batch, head, start + token)
        for element in range(0, value_size, 16):
            store_f32_first(out + element * 4, _biased(v, v_bias, element, value_size - element), value_size - element)
    if not argument(record, IS_IN_PLACE):
        end, past = start + length, argument(record, PAST_ROWS)
        copy_past(record, batch, head, end, past)
        first = max(end, past)
        if capacity > first:
            clear(at(record, KEYS, batch, head, first), (capacity - first) * size * 4)
            clear(at(record, VALUES, batch, head, first), (capacity - first) * value_size * 4)


@inner
def rotate_queries(record: int, batch: int, head: int) -> None:
    """Put the rotated queries of a head to where they go."""
    size, length, target = argument(record, SIZE), argument(record, LENGTH), argument(record, ROTATED)
    heads = argument(record, KEY_HEADS) * argument(record, GROUP)
    bias = argument(record, BIASES)
    bias = bias + head * size * 4 if bias else 0
    for token in range(length):
        out = target + ((batch * heads + head) * length + token) * size * 4
        put_row(record, batch, token, at(record, Q, batch, head, token), bias, size, ONE, out)
