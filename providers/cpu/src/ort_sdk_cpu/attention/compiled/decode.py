"""Attention of few queries over a key-value cache, and what puts new keys and values behind past ones, rotated or not.

Keys are lanes: a query's products with 16 keys are summed in registers, and the rows of values are added up with its weights.
Threads share the keys of all heads in blocks of ``BLOCK``, as Flash-Decoding does (Dao et al. 2023): where the keys of a head are
shared by several, each leaves its sums and its largest score in its working memory, and the last thread that ends combines them.
All tasks take the same arguments. Steps are in bytes, and an address is 0 where there is nothing:

- 0 to 11: new queries, keys and values: address, steps along batch, heads and rows;
- 12 to 17: past keys and values: address, steps along batch and heads;
- 18 to 29: the keys and values that are attended, and the result: as the first;
- 30 to 34: numbers added to the scores: address, steps along batch, heads, queries and keys;
- 35 to 37: biases of queries, keys and values (heads * size);
- 38 to 42: cosines and sines (row, pair), bytes of a row, pairs, whether pairs are neighbours;
- 43, 44: row of each token, int64 (batch, length), its position where there is none; rows, the last for all tokens behind;
- 45: int64 (batch, 3): row of the first new key, position of the first query, and keys;
- 46: numbers of heads that take part in their softmaxes;
- 47 to 52: batch, heads of keys, heads that share one, tokens, size of keys, of values;
- 53, 54: positions a query sees before and behind its own; -1 for all;
- 55 to 58: rows of the past, rows of the cache, whether new keys are put into it, whether it is the past's memory;
- 59, 60: 0 before and afterwards: parts that have ended; whether attention also fills the cache;
- 61 to 63: working memory, bytes of each part; where rotated queries go (batch, heads, tokens, size);
- 64, 65: float32, the factor of scores and their cap;
- 66, 67: new keys; most keys that a query sees, whatever 45 says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.microkernels.qk import SUM_ROWS, add_weighted_rows, dots_of_sixteen, sum_columns
from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.arithmetic import (
    add,
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
from ort_sdk_cpu.simd.barrier import count_arrival
from ort_sdk_cpu.simd.math import exp_of_negative, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_first,
    prefetch,
    read_f32,
    store_f32,
    store_f32_first,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.remainder import load_f32_first_or, load_f32_steps

from .cache_rows import (
    BATCH,
    BIASES,
    ENDED,
    FILLS,
    GROUP,
    HAS_CACHE,
    IS_IN_PLACE,
    KEY_HEADS,
    KEYS,
    LEFT,
    LENGTH,
    MASK,
    ONE,
    OUT,
    PART_BYTES,
    PAST_ROWS,
    RIGHT,
    ROTATED,
    SCALE,
    SINKS,
    SIZE,
    SOFTCAP,
    VALUE_SIZE,
    VALUES,
    WORK,
    Q,
    at,
    clear,
    copy,
    copy_past,
    keys_of,
    position_of,
    put_new,
    put_row,
    rotate_queries,
    start_of,
)

__all__ = ["attend_few", "extend", "rotate"]

BLOCK = 64
"""Keys at a time: their scores stay in registers' reach, and they themselves in the nearest cache."""
_SCORES_ROW = BLOCK * 4
_LOWEST, _HIDDEN = np.finfo(np.float32).min, np.float32(-np.inf)
_TINY = np.float32(1e-30)
"""Below the sum of any softmax: what sees nothing is divided by it."""
_columns = inner(sum_columns)


@task
def extend(record: int, part: int, parts: int) -> None:
    """Fill the cache, and rotate queries."""
    key_heads, group = argument(record, KEY_HEADS), argument(record, GROUP)
    items = argument(record, BATCH) * key_heads
    for item in range(items * part // parts, items * (part + 1) // parts):
        batch, head = item // key_heads, item % key_heads
        if argument(record, HAS_CACHE):
            if not argument(record, IS_IN_PLACE):
                copy_past(record, batch, head, 0, min(start_of(record, batch), argument(record, PAST_ROWS)))
            put_new(record, batch, head)
        if argument(record, ROTATED):
            for shared in range(group):
                rotate_queries(record, batch, head * group + shared)


@task
def rotate(record: int, part: int, parts: int) -> None:
    """Rotate new queries to the result."""
    heads, length, size = argument(record, KEY_HEADS), argument(record, LENGTH), argument(record, SIZE)
    items = argument(record, BATCH) * length
    for item in range(items * part // parts, items * (part + 1) // parts):
        batch, token = item // length, item % length
        for head in range(heads):
            x, out = at(record, Q, batch, head, token), at(record, OUT, batch, head, token)
            put_row(record, batch, token, x, 0, size, ONE, out)


@inner
def _masked(scores: int, mask: int, step: int, left: int) -> Any:
    """16 scores with a mask's numbers."""
    value = load_f32(scores)
    if step == 4:
        return add(value, load_f32_first(mask, left))
    return add(value, load_f32_steps(mask, step, min(left, 16)))


@inner
def _bounded(scores: int, count: int, skipped: int, shown: int, mask: int, mask_step: int, cap: float, hidden: int) -> Any:
    """Final scores of a block in their place, and the largest of each lane.

    ``skipped`` keys at first and those from ``shown`` on are hidden; ``hidden`` is where 16 numbers that hide are.
    """
    largest = splat_f32(_LOWEST)
    for key in range(0, count, 16):
        place = scores + key * 4
        if cap > 0:
            store_f32(place, multiply(tanh(divide(load_f32(place), splat_f32(cap))), splat_f32(cap)))
        if mask:
            store_f32(place, _masked(place, mask + key * mask_step, mask_step, count - key))
        value = load_f32_first_or(place, shown - key, splat_f32(_HIDDEN))
        if skipped > key:
            value = load_f32_first_or(hidden, skipped - key, value)
        store_f32(place, value)
        largest = maximum(value, largest)
    return largest


@inner
def _weigh(scores: int, count: int, largest: Any, state: int, result: int, vectors: int, is_first: int) -> None:
    """Weights of a block in the place of its scores; earlier results shrink. State: largest score, sum of the weights."""
    before = broadcast_f32(state)
    top = maximum(splat_f32(reduce_max(largest)), before)
    shrink, total = exp_of_negative(subtract(before, top)), zero_f32()
    for place in range(scores, scores + count * 4, 64):
        weight = exp_of_negative(subtract(load_f32(place), top))
        store_f32(place, weight)
        total = add(total, weight)
    if not is_first:
        for place in range(result, result + vectors * 64, 64):
            store_f32(place, multiply(load_f32(place), shrink))
    sums = fused_multiply_add(broadcast_f32(state + 4), shrink, splat_f32(reduce_add(total)))
    store_f32_first(state, top, 1)
    store_f32_first(state + 4, sums, 1)


@inner
def _add_values(rows: int, scores: int, count: int, v: int, v_row: int, vectors: int, result: int, is_first: int) -> None:
    for row in range(0, rows, SUM_ROWS):
        found, place, column = min(SUM_ROWS, rows - row), result + row * vectors * 64, 0
        while column < vectors:
            width, weights = _columns(found, vectors - column), scores + row * _SCORES_ROW
            values, target = v + column * 64, place + column * 64
            add_weighted_rows(found, width, values, v_row, weights, _SCORES_ROW, count, target, vectors * 64, is_first)
            column += width


@inner
def _prefetch_rows(row: int, step: int, rows: int, nbytes: int) -> None:
    for _ in range(rows):
        for line in range(0, nbytes, 64):
            prefetch(row + line)
        row += step


@inner
def attend_keys(
    record: int,
    batch: int,
    head: int,
    key: int,
    count: int,
    spare: int,
    is_first: int,
    k: int,
    k_row: int,
    v: int,
    v_row: int,
    ahead: int,
) -> None:
    """The queries of a head of keys, and some of its keys: these and their values are rows of float32 from k and v on.

    While scores are computed, the values of the same keys are prefetched, and the keys ``ahead`` bytes on.
    """
    size, vectors, length = argument(record, SIZE), argument(record, VALUE_SIZE) // 16, argument(record, LENGTH)
    rows = argument(record, GROUP) * length
    hidden, queries = spare, spare + 64
    scores = queries + rows * size * 4
    result, state = scores + rows * _SCORES_ROW, scores + rows * (_SCORES_ROW + vectors * 64)
    for start in range(0, count, 16):
        for row in range(rows):
            place = scores + row * _SCORES_ROW + start * 4
            if ahead:
                # All at once they would wait for one another: a core has some twenty cache lines on the way.
                some, stop = start + 16 * row // rows, start + 16 * (row + 1) // rows
                _prefetch_rows(v + some * v_row, v_row, stop - some, vectors * 64)
                _prefetch_rows(k + ahead + some * k_row, k_row, stop - some, size * 4)
            dots_of_sixteen(queries + row * size * 4, k + start * k_row, k_row, count - start, size // 16, place)
    left, right, mask = argument(record, LEFT), argument(record, RIGHT), argument(record, MASK)
    for row in range(rows):
        token = row % length
        position = position_of(record, batch) + token
        skipped = position - left - key if left >= 0 else 0
        shown = min(count, position + right + 1 - key) if right >= 0 else count
        place = 0
        if mask:
            own = head * argument(record, GROUP) + row // length
            place = at(record, MASK, batch, own, token) + key * argument(record, MASK + 4)
        own = scores + row * _SCORES_ROW
        largest = _bounded(own, count, skipped, shown, place, argument(record, MASK + 4), number(record, SOFTCAP), hidden)
        _weigh(own, count, largest, state + row * 8, result + row * vectors * 64, vectors, is_first)
    _add_values(rows, scores, count, v, v_row, vectors, result, is_first)


@inner
def _state(record: int, spare: int) -> Any:
    """Where the results of a part's queries are, and behind them, of each, its largest score and the sum of its weights."""
    rows = argument(record, GROUP) * argument(record, LENGTH)
    return spare + 64 + rows * (argument(record, SIZE) * 4 + _SCORES_ROW)


@inner
def _state_bytes(record: int) -> Any:
    return argument(record, GROUP) * argument(record, LENGTH) * (argument(record, VALUE_SIZE) * 4 + 8)


@inner
def begin(record: int, batch: int, head: int, has_sinks: int, spare: int) -> None:
    """Queries of a head of keys, and their state before the first key."""
    size, length, sinks = argument(record, SIZE), argument(record, LENGTH), argument(record, SINKS) if has_sinks else 0
    rows, bias = argument(record, GROUP) * length, argument(record, BIASES)
    state = _state(record, spare) + rows * argument(record, VALUE_SIZE) * 4
    store_f32(spare, splat_f32(_HIDDEN))
    for row in range(rows):
        own, token = head * argument(record, GROUP) + row // length, row % length
        x, shift = at(record, Q, batch, own, token), bias + own * size * 4 if bias else 0
        put_row(record, batch, token, x, shift, size, number(record, SCALE), spare + 64 + row * size * 4)
        write_f32(state + row * 8, read_f32(sinks + own * 4) if sinks else _LOWEST)
        write_f32(state + row * 8 + 4, ONE if sinks else np.float32(0))


@inner
def _finish(record: int, batch: int, head: int, result: int) -> None:
    """Write the result of a state."""
    vectors, length = argument(record, VALUE_SIZE) // 16, argument(record, LENGTH)
    rows, bias = argument(record, GROUP) * length, 0 if argument(record, HAS_CACHE) else argument(record, BIASES + 2)
    for row in range(rows):
        own, token = head * argument(record, GROUP) + row // length, row % length
        total = maximum(broadcast_f32(result + rows * vectors * 64 + row * 8 + 4), splat_f32(_TINY))
        out, source = at(record, OUT, batch, own, token), result + row * vectors * 64
        for place in range(0, vectors * 64, 64):
            value = divide(load_f32(source + place), total)
            shift = load_f32(bias + own * vectors * 64 + place) if bias else zero_f32()
            store_f32(out + place, add(value, shift))


@inner
def end(record: int, batch: int, head: int, is_first: int, is_last: int, has_seen: int, spare: int) -> None:
    """What comes of the state: the result where it is of all keys, else it is left for ``combine``."""
    result, nbytes = _state(record, spare), _state_bytes(record)
    if not has_seen:
        clear(result, argument(record, GROUP) * argument(record, LENGTH) * argument(record, VALUE_SIZE) * 4)
    if is_first and is_last:
        _finish(record, batch, head, result)
    else:
        copy(result, result + (1 + is_first) * nbytes, nbytes)


@inner
def is_copied(record: int) -> Any:
    """Whether the past is copied to the cache meanwhile."""
    return argument(record, FILLS) and not argument(record, IS_IN_PLACE)


@inner
def visible(record: int, batch: int) -> Any:
    """First key, a multiple of ``BLOCK``, and end of those that some query of a sequence sees."""
    keys, position = keys_of(record, batch), position_of(record, batch)
    left, right = argument(record, LEFT), argument(record, RIGHT)
    first = max(0, position - left) // BLOCK * BLOCK if left >= 0 else 0
    stop = min(keys, position + argument(record, LENGTH) + right) if right >= 0 else keys
    return first, max(first, stop)


@inner
def shared_keys(record: int, batch: int) -> Any:
    """First key and end of those that threads share: all that are attended or copied."""
    if is_copied(record):
        return 0, keys_of(record, batch)
    return visible(record, batch)


@inner
def block_count(record: int, batch: int) -> Any:
    """Blocks of keys of a head that threads share. The last is longer where new keys are: who attends them puts them there."""
    first, stop = shared_keys(record, batch)
    last = min(start_of(record, batch), stop - 1) if argument(record, FILLS) else stop - 1
    return max(0, last - first) // BLOCK + 1


@inner
def all_blocks(record: int) -> Any:
    total = 0
    for batch in range(argument(record, BATCH)):
        total += block_count(record, batch) * argument(record, KEY_HEADS)
    return total


@inner
def _add_state(record: int, source: int, target: int) -> None:
    """Add the sums of other keys of the same queries."""
    rows, vectors = argument(record, GROUP) * argument(record, LENGTH), argument(record, VALUE_SIZE) // 16
    for row in range(rows):
        own, other = target + rows * vectors * 64 + row * 8, source + rows * vectors * 64 + row * 8
        top = maximum(broadcast_f32(own), broadcast_f32(other))
        shrink, grow = exp_of_negative(subtract(broadcast_f32(own), top)), exp_of_negative(subtract(broadcast_f32(other), top))
        for place in range(row * vectors * 64, (row + 1) * vectors * 64, 64):
            value = multiply(load_f32(target + place), shrink)
            store_f32(target + place, fused_multiply_add(load_f32(source + place), grow, value))
        sums = multiply(broadcast_f32(own + 4), shrink)
        store_f32_first(own + 4, fused_multiply_add(broadcast_f32(other + 4), grow, sums), 1)
        store_f32_first(own, top, 1)


@inner
def combine(record: int, parts: int) -> None:
    """The results of heads whose keys several parts have attended, by the part that ends last."""
    if count_arrival(record + ENDED * 8) < parts - 1:
        return
    write_i64(record + ENDED * 8, 0)
    total, base, part = all_blocks(record), 0, 0
    state, nbytes = _state(record, argument(record, WORK)), _state_bytes(record)
    for batch in range(argument(record, BATCH)):
        blocks = block_count(record, batch)
        for head in range(argument(record, KEY_HEADS)):
            while total * (part + 1) // parts <= base:
                part += 1
            if total * (part + 1) // parts < base + blocks:
                target = state + part * argument(record, PART_BYTES) + 2 * nbytes
                while total * (part + 1) // parts < base + blocks:
                    part += 1
                    if total * part // parts < total * (part + 1) // parts:
                        _add_state(record, state + part * argument(record, PART_BYTES) + nbytes, target)
                _finish(record, batch, head, target)
            base += blocks


@inner
def _attend(record: int, batch: int, head: int, first: int, stop: int, blocks: int, spare: int) -> None:
    """Some of the blocks of a head of keys."""
    (from_key, keys), (low, high) = shared_keys(record, batch), visible(record, batch)
    until = keys if stop == blocks else from_key + stop * BLOCK
    past = min(start_of(record, batch), argument(record, PAST_ROWS)) if is_copied(record) else 0
    k_row, v_row = argument(record, KEYS + 3), argument(record, VALUES + 3)
    begin(record, batch, head, int(first == 0), spare)
    is_first = 1
    for key in range(from_key + first * BLOCK, until, BLOCK):
        copy_past(record, batch, head, key, min(past, key + BLOCK, until))
        count = min(BLOCK, min(until, high) - key)
        if count > 0 and key >= low:
            k, v = at(record, KEYS, batch, head, key), at(record, VALUES, batch, head, key)
            attend_keys(record, batch, head, key, count, spare, is_first, k, k_row, v, v_row, BLOCK * k_row)
            is_first = 0
    end(record, batch, head, int(first == 0), int(stop == blocks), 1 - is_first, spare)


@task
def attend_few(record: int, part: int, parts: int) -> None:
    """The queries of each head of keys; sizes of keys and values are multiples of 16."""
    spare = argument(record, WORK) + part * argument(record, PART_BYTES)
    total, base = all_blocks(record), 0
    low, high = total * part // parts, total * (part + 1) // parts
    for batch in range(argument(record, BATCH)):
        blocks = block_count(record, batch)
        for head in range(argument(record, KEY_HEADS)):
            first, stop = max(low - base, 0), min(high - base, blocks)
            if first < stop:
                if stop == blocks and argument(record, FILLS):
                    put_new(record, batch, head)
                _attend(record, batch, head, first, stop, blocks, spare)
            base += blocks
    combine(record, parts)
