"""Rows of a key-value cache: new keys and values are appended to past ones, rotated or not, and queries rotated."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.arguments.decode import CachedTokens
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import zero_f32
from ort_sdk_cpu.simd.memory import load_i32, read_f32, read_i64, store_f32, store_f32_masked, store_i32, write_f32

from .operands import row_of
from .rotary import ONE, biased, rotate_row

__all__ = ["append_rows", "append_start", "clear", "copy", "copy_past", "end_append", "key_count", "past_head", "rotate_queries"]


@inline
def append_start(args: CachedTokens, batch: int) -> Any:
    """Row of the cache for the first new key of a sequence, between 0 and the capacity.

    Numbers that are read at run time say where memory is touched: they are bounded here, and nobody else reads them.
    """
    return min(max(0, read_i64(args.cache_positions + batch * 24)), args.capacity)


@inline
def key_count(args: CachedTokens, batch: int) -> Any:
    """Keys of a sequence, bounded in the same way."""
    return min(max(0, read_i64(args.cache_positions + (batch * 3 + 2) * 8)), args.max_keys)


@inline
def copy(source: int, target: int, nbytes: int) -> None:
    """Copy bytes, a multiple of 4."""
    # As integers of 32 bits: elements are float32, or pairs of float16.
    whole = nbytes // 64 * 64
    for offset in range(0, whole, 64):
        store_i32(target + offset, load_i32(source + offset))
    for offset in range(whole, nbytes, 4):
        write_f32(target + offset, read_f32(source + offset))


@inline
def clear(target: int, nbytes: int) -> None:
    """Make bytes 0, a multiple of 4."""
    whole = nbytes // 64 * 64
    for offset in range(0, whole, 64):
        store_f32(target + offset, zero_f32())
    for offset in range(whole, nbytes, 4):
        write_f32(target + offset, np.float32(0))


@inline
def past_head(args: CachedTokens, batch: int, head: int) -> Any:
    """(keys, values) of a head in the past."""
    keys, values = args.past_keys, args.past_values
    k = keys.base + batch * keys.batch_stride + head * keys.head_stride
    return k, values.base + batch * values.batch_stride + head * values.head_stride


@inline
def copy_past(args: CachedTokens, itemsize: int, batch: int, head: int, first: int, stop: int) -> None:
    """Rows of the past to the cache."""
    k_row, v_row = args.head_size * itemsize, args.value_size * itemsize
    k, v = past_head(args, batch, head)
    # Rows of a head follow each other in both, so a head is one copy.
    if stop > first:
        copy(k + first * k_row, row_of(args.keys, batch, head, first), (stop - first) * k_row)
        copy(v + first * v_row, row_of(args.values, batch, head, first), (stop - first) * v_row)


@inline
def end_append(args: CachedTokens, itemsize: int, batch: int, head: int) -> None:
    """Rows after the new ones, in a cache with memory of its own: rows of the past, where new ones replaced some, and zeros."""
    # A caller may read all rows of a cache that it gets: none may have what was in recycled memory.
    if not args.is_in_place:
        end, past, capacity = append_start(args, batch) + args.new_tokens, args.past_rows, args.capacity
        copy_past(args, itemsize, batch, head, end, past)
        first = max(end, past)
        if capacity > first:
            clear(row_of(args.keys, batch, head, first), (capacity - first) * args.head_size * itemsize)
            clear(row_of(args.values, batch, head, first), (capacity - first) * args.value_size * itemsize)


@inline
def append_rows(args: CachedTokens, batch: int, head: int) -> None:
    """The new rows of a head to the cache, and what comes after them."""
    size, value_size, start = args.head_size, args.value_size, append_start(args, batch)
    k_bias, v_bias = args.k_bias, args.v_bias
    k_bias, v_bias = k_bias + head * size * 4 if k_bias else 0, v_bias + head * value_size * 4 if v_bias else 0
    # Keys are rotated once, when they are appended: the cache has them as attention reads them.
    for token in range(min(args.new_tokens, args.capacity - start)):
        k, v = row_of(args.k, batch, head, token), row_of(args.v, batch, head, token)
        rotate_row(args, batch, token, k, k_bias, size, ONE, row_of(args.keys, batch, head, start + token))
        out = row_of(args.values, batch, head, start + token)
        for element in range(0, value_size, 16):
            store_f32_masked(out + element * 4, biased(v, v_bias, element, value_size - element), value_size - element)
    end_append(args, 4, batch, head)


@inline
def rotate_queries(args: CachedTokens, batch: int, head: int) -> None:
    """Put the rotated queries of a head to where they go."""
    size, tokens = args.head_size, args.tokens
    bias = args.q_bias
    bias = bias + head * size * 4 if bias else 0
    for token in range(tokens):
        out = args.rotated + ((batch * args.key_heads * args.group + head) * tokens + token) * size * 4
        rotate_row(args, batch, token, row_of(args.q, batch, head, token), bias, size, ONE, out)
