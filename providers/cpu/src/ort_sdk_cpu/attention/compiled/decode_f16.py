"""Attention of few queries over a key-value cache of float16: new keys and values are rounded, what is read is widened.

A block of keys and values is widened once for all queries that share it, to memory near the core, and attended there as float32.
Arguments are those of ``compiled.decode``; past, keys and values are float16, and there are no biases. Behind the
working memory that attention takes, each part has ``TILE_ROWS`` rows of keys and of values as float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from ort_sdk_cpu.jit.cache_folder import inner
from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument
from ort_sdk_cpu.simd.fp16 import load_f16
from ort_sdk_cpu.simd.memory import emit_store, load_f32, store_f32
from ort_sdk_cpu.simd.vector_types import LANES, f32x16, operation

from .cache_rows import (
    BATCH,
    CAPACITY,
    FILLS,
    IS_IN_PLACE,
    KEY_HEADS,
    KEYS,
    NEW,
    ONE,
    PART_BYTES,
    PAST_K,
    PAST_ROWS,
    PAST_V,
    SIZE,
    VALUE_SIZE,
    VALUES,
    WORK,
    K,
    V,
    at,
    clear,
    copy,
    put_row,
    start_of,
)
from .decode import BLOCK, all_blocks, attend_keys, begin, block_count, combine, end, is_copied, shared_keys, visible

__all__ = ["attend_halves"]

_HALVES = ir.VectorType(ir.HalfType(), LANES)


@operation(types.none, types.intp, f32x16)
def _store_f16(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, builder.fptrunc(value, _HALVES))


@inner
def _narrow(x: int, out: int, size: int) -> None:
    for element in range(0, size, 16):
        _store_f16(out + element * 2, load_f32(x + element * 4))


@inner
def _widen(x: int, x_row: int, rows: int, size: int, out: int) -> None:
    for row in range(rows):
        for element in range(0, size, 16):
            store_f32(out + (row * size + element) * 4, load_f16(x + row * x_row + element * 2))


@inner
def _copy_past_halves(record: int, batch: int, head: int, first: int, stop: int) -> None:
    k_row, v_row = argument(record, SIZE) * 2, argument(record, VALUE_SIZE) * 2
    k = argument(record, PAST_K) + batch * argument(record, PAST_K + 1) + head * argument(record, PAST_K + 2)
    v = argument(record, PAST_V) + batch * argument(record, PAST_V + 1) + head * argument(record, PAST_V + 2)
    if stop > first:
        copy(k + first * k_row, at(record, KEYS, batch, head, first), (stop - first) * k_row)
        copy(v + first * v_row, at(record, VALUES, batch, head, first), (stop - first) * v_row)


@inner
def _put_new_halves(record: int, batch: int, head: int, spare: int) -> None:
    """The new rows of a head to the cache, and what is behind them; ``spare`` has room for a row."""
    size, value_size, length = argument(record, SIZE), argument(record, VALUE_SIZE), argument(record, NEW)
    start, capacity = start_of(record, batch), argument(record, CAPACITY)
    for token in range(min(length, capacity - start)):
        put_row(record, batch, token, at(record, K, batch, head, token), 0, size, ONE, spare)
        _narrow(spare, at(record, KEYS, batch, head, start + token), size)
        _narrow(at(record, V, batch, head, token), at(record, VALUES, batch, head, start + token), value_size)
    if not argument(record, IS_IN_PLACE):
        end, past = start + length, argument(record, PAST_ROWS)
        _copy_past_halves(record, batch, head, end, past)
        first = max(end, past)
        if capacity > first:
            clear(at(record, KEYS, batch, head, first), (capacity - first) * size * 2)
            clear(at(record, VALUES, batch, head, first), (capacity - first) * value_size * 2)


@inner
def _attend_widened(record: int, batch: int, head: int, first: int, stop: int, blocks: int, spare: int, tiles: int) -> None:
    """Some of the blocks of a head of keys; ``tiles`` is where a block of keys and one of values are widened."""
    (from_key, keys), (low, high) = shared_keys(record, batch), visible(record, batch)
    until = keys if stop == blocks else from_key + stop * BLOCK
    past = min(start_of(record, batch), argument(record, PAST_ROWS)) if is_copied(record) else 0
    size, value_size = argument(record, SIZE), argument(record, VALUE_SIZE)
    v = tiles + BLOCK * size * 4
    begin(record, batch, head, int(first == 0), spare)
    is_first = 1
    for key in range(from_key + first * BLOCK, until, BLOCK):
        _copy_past_halves(record, batch, head, key, min(past, key + BLOCK, until))
        count = min(BLOCK, min(until, high) - key)
        if count > 0 and key >= low:
            _widen(at(record, KEYS, batch, head, key), argument(record, KEYS + 3), count, size, tiles)
            _widen(at(record, VALUES, batch, head, key), argument(record, VALUES + 3), count, value_size, v)
            attend_keys(record, batch, head, key, count, spare, is_first, tiles, size * 4, v, value_size * 4, 0)
            is_first = 0
    end(record, batch, head, int(first == 0), int(stop == blocks), 1 - is_first, spare)


@task
def attend_halves(record: int, part: int, parts: int) -> None:
    """The queries of each head of keys; sizes of keys and values are multiples of 16."""
    spare = argument(record, WORK) + part * argument(record, PART_BYTES)
    tiles = spare + argument(record, PART_BYTES) - BLOCK * (argument(record, SIZE) + argument(record, VALUE_SIZE)) * 4
    total, base = all_blocks(record), 0
    low, high = total * part // parts, total * (part + 1) // parts
    for batch in range(argument(record, BATCH)):
        blocks = block_count(record, batch)
        for head in range(argument(record, KEY_HEADS)):
            first, stop = max(low - base, 0), min(high - base, blocks)
            if first < stop:
                if stop == blocks and argument(record, FILLS):
                    _put_new_halves(record, batch, head, tiles)
                _attend_widened(record, batch, head, first, stop, blocks, spare, tiles)
            base += blocks
    combine(record, parts)
