"""Attention of few queries over a key-value cache, which is filled on the way.

This is Flash-Decoding (Dao et al. 2023): with one query or few the keys, not the queries, are shared among the threads, in blocks
of 64 keys of all heads. Within a thread's keys of a head the online softmax (Milakov & Gimelshein 2018) goes on as in
``flash``: largest score m, sum of weights l, and result o that is not divided yet. Where the keys of a head are shared by several
threads, each leaves its (m, l, o), and the last thread that ends combines them: with m = max(m1, m2) the sum is
l = exp(m1 - m) l1 + exp(m2 - m) l2, and o likewise. A thread has a range of blocks, so it shares at most its first and last head.

Keys are lanes here, since queries would not fill a vector. A query's dot products with 16 keys are summed in registers, for all
queries of a head of keys in turn (so heads that share keys read them once from memory), and the rows of values are added up with
their weights, as a GEMV does. It all goes at the pace at which memory gives keys and values. So the next block's keys and this
block's values are prefetched while scores are computed, and the cache is filled on the way: rows of the past are attended while
they are near the core from being copied.

64 keys of heads of 128 are 32 KiB, as large as the first-level cache; smaller blocks share the work more evenly, larger ones
correct results less often.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.arguments.decode import KEY_BLOCK, AppendToCache, CachedTokens, DecodeAttention
from ort_sdk_cpu.attention.microkernels.qk import TILE_ROWS, accumulate_rows, dot_16_rows, tile_vectors
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
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
from ort_sdk_cpu.simd.math import exp_nonpositive, tanh
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_masked,
    load_f32_masked_or,
    load_f32_strided,
    prefetch,
    read_f32,
    store_f32,
    store_f32_masked,
    write_f32,
    write_i64,
)
from ort_sdk_cpu.simd.synchronization import count_arrival

from .cache_rows import append_rows, append_start, clear, copy, copy_past, key_count, rotate_queries
from .operands import bias_row, row_of
from .rotary import ONE, first_position, rotate_row

__all__ = ["append_to_cache", "decode_attention"]

_SCORES_ROW = KEY_BLOCK * 4
"""Bytes of a query's scores of a block."""
_LOWEST, _HIDDEN = np.finfo(np.float32).min, np.float32(-np.inf)
_TINY = np.float32(1e-30)
"""Below the sum of any softmax: a query that sees no key has the sum 0, and its result is 0 / 1e-30 = 0."""
_tile_vectors = inline(tile_vectors)


@task
def append_to_cache(args: AppendToCache, thread: int, threads: int) -> None:
    """Fill the cache, and rotate queries, before many queries attend; each thread has a range of heads of keys."""
    # Heads of keys, not tokens, are shared: each thread then writes memory of its own, and copies whole heads of the past.
    items = args.batch * args.key_heads
    for item in range(items * thread // threads, items * (thread + 1) // threads):
        batch, head = item // args.key_heads, item % args.key_heads
        if args.appends:
            if not args.is_in_place:
                copy_past(args, 4, batch, head, 0, min(append_start(args, batch), args.past_rows))
            append_rows(args, batch, head)
        if args.rotated:
            for shared in range(args.group):
                rotate_queries(args, batch, head * args.group + shared)


@inline
def _add_mask(scores: int, mask: int, stride: int, left: int) -> Any:
    """16 scores and their mask."""
    value = load_f32(scores)
    if stride == 4:
        return add(value, load_f32_masked(mask, left))
    return add(value, load_f32_strided(mask, stride, min(left, 16)))


@inline
def _final_scores(scores: int, count: int, skipped: int, shown: int, mask: int, mask_stride: int, cap: float, hidden: int) -> Any:
    """Capped and masked scores of a block in their place, and the largest of each lane.

    The first ``skipped`` keys and those from ``shown`` on are hidden; ``hidden`` is the address of 16 numbers that hide.
    """
    largest = splat_f32(_LOWEST)
    for key in range(0, count, 16):
        own = scores + key * 4
        if cap > 0:
            store_f32(own, multiply(tanh(divide(load_f32(own), splat_f32(cap))), splat_f32(cap)))
        if mask:
            store_f32(own, _add_mask(own, mask + key * mask_stride, mask_stride, count - key))
        # Lanes after the last key are hidden, too: their scores are those of the last key, again.
        value = load_f32_masked_or(own, shown - key, splat_f32(_HIDDEN))
        if skipped > key:
            value = load_f32_masked_or(hidden, skipped - key, value)
        store_f32(own, value)
        largest = maximum(value, largest)
    return largest


@inline
def _online_softmax(scores: int, count: int, largest: Any, state: int, result: int, vectors: int, is_first: int) -> None:
    """Weights of a block in the place of its scores; earlier results are corrected. State: largest score, sum of weights."""
    before = broadcast_f32(state)
    top = maximum(splat_f32(reduce_max(largest)), before)
    correction, total = exp_nonpositive(subtract(before, top)), zero_f32()
    for own in range(scores, scores + count * 4, 64):
        weight = exp_nonpositive(subtract(load_f32(own), top))
        store_f32(own, weight)
        total = add(total, weight)
    # The first block writes the result, so that nothing need be cleared or corrected.
    if not is_first:
        for own in range(result, result + vectors * 64, 64):
            store_f32(own, multiply(load_f32(own), correction))
    # Lanes of the sum of weights are added for each block: the state of a query is two numbers, whatever the block.
    sums = fused_multiply_add(broadcast_f32(state + 4), correction, splat_f32(reduce_add(total)))
    store_f32_masked(state, top, 1)
    store_f32_masked(state + 4, sums, 1)


@inline
def _add_values(rows: int, weights: int, count: int, v: int, v_row: int, vectors: int, result: int, is_first: int) -> None:
    """Results += weights (rows, count) * values (count, vectors of 16), by as many columns as registers hold."""
    for row in range(0, rows, TILE_ROWS):
        found, out, own, column = min(TILE_ROWS, rows - row), result + row * vectors * 64, weights + row * _SCORES_ROW, 0
        while column < vectors:
            # As wide as registers hold: each row of values is loaded once per tile of queries.
            width = _tile_vectors(found, vectors - column)
            values, target = v + column * 64, out + column * 64
            accumulate_rows(found, width, values, v_row, own, _SCORES_ROW, count, target, vectors * 64, is_first)
            column += width


@inline
def _prefetch_rows(row: int, stride: int, rows: int, nbytes: int) -> None:
    for _ in range(rows):
        for line in range(0, nbytes, 64):
            prefetch(row + line)
        row += stride


@inline
def attend_keys(
    args: CachedTokens,
    batch: int,
    head: int,
    key: int,
    count: int,
    workspace: int,
    is_first: int,
    k: int,
    k_row: int,
    v: int,
    v_row: int,
    ahead: int,
) -> None:
    """The queries of a head of keys, and some of its keys: these and their values are rows of float32 from k and v on.

    While scores are computed, the values of the same keys are prefetched, and the keys ``ahead`` bytes on; none if that is 0.
    """
    size, vectors, tokens = args.head_size, args.value_size // 16, args.tokens
    rows = args.group * tokens
    hidden, queries = workspace, workspace + 64
    scores = queries + rows * size * 4
    result, state = scores + rows * _SCORES_ROW, scores + rows * (_SCORES_ROW + vectors * 64)
    # Sixteen keys for all queries before the next sixteen: they are read from memory once, and then from the first-level cache.
    for start in range(0, count, 16):
        for row in range(rows):
            own = scores + row * _SCORES_ROW + start * 4
            if ahead:
                # Some with each query: all at once they would wait for one another, as a core has some twenty cache lines on the
                # way at a time.
                some, stop = start + 16 * row // rows, start + 16 * (row + 1) // rows
                _prefetch_rows(v + some * v_row, v_row, stop - some, vectors * 64)
                _prefetch_rows(k + ahead + some * k_row, k_row, stop - some, size * 4)
            dot_16_rows(queries + row * size * 4, k + start * k_row, k_row, count - start, size // 16, own)
    left, right, key_stride = args.left, args.right, args.mask.key_stride
    for row in range(rows):
        token = row % tokens
        position = first_position(args, batch) + token
        skipped = position - left - key if left >= 0 else 0
        shown = min(count, position + right + 1 - key) if right >= 0 else count
        mask = bias_row(args.mask, batch, head * args.group + row // tokens, token)
        mask = mask + key * key_stride if mask else 0
        own = scores + row * _SCORES_ROW
        largest = _final_scores(own, count, skipped, shown, mask, key_stride, args.softcap, hidden)
        _online_softmax(own, count, largest, state + row * 8, result + row * vectors * 64, vectors, is_first)
    _add_values(rows, scores, count, v, v_row, vectors, result, is_first)


@inline
def _state(args: CachedTokens, workspace: int) -> Any:
    """Address of the results of a thread's queries; after them, for each, its largest score and its sum of weights."""
    return workspace + 64 + args.group * args.tokens * (args.head_size * 4 + _SCORES_ROW)


@inline
def _state_bytes(args: CachedTokens) -> Any:
    return args.group * args.tokens * (args.value_size * 4 + 8)


@inline
def begin(args: CachedTokens, batch: int, head: int, has_sinks: int, workspace: int) -> None:
    """Queries of a head of keys, rotated and scaled, and their state before the first key.

    A sink is a key that was seen already; one thread alone counts it, that of the first keys.
    """
    size, tokens, sinks = args.head_size, args.tokens, args.sinks if has_sinks else 0
    rows, bias = args.group * tokens, args.q_bias
    state = _state(args, workspace) + rows * args.value_size * 4
    # A vector of hidden scores in memory: loads with a mask then choose between it and scores without a branch.
    store_f32(workspace, splat_f32(_HIDDEN))
    for row in range(rows):
        own, token = head * args.group + row // tokens, row % tokens
        x, shift = row_of(args.q, batch, own, token), bias + own * size * 4 if bias else 0
        # Scaled with the rotation, which multiplies anyway: scores need no scale then.
        rotate_row(args, batch, token, x, shift, size, args.scale, workspace + 64 + row * size * 4)
        write_f32(state + row * 8, read_f32(sinks + own * 4) if sinks else _LOWEST)
        write_f32(state + row * 8 + 4, ONE if sinks else np.float32(0))


@inline
def _finish(args: CachedTokens, batch: int, head: int, result: int) -> None:
    """Write the result of a state. Values that were appended have their bias already; else the sum of weights 1 adds it here."""
    vectors, tokens = args.value_size // 16, args.tokens
    rows, bias = args.group * tokens, 0 if args.appends else args.v_bias
    for row in range(rows):
        own, token = head * args.group + row // tokens, row % tokens
        total = maximum(broadcast_f32(result + rows * vectors * 64 + row * 8 + 4), splat_f32(_TINY))
        out, source = row_of(args.out, batch, own, token), result + row * vectors * 64
        for offset in range(0, vectors * 64, 64):
            value = divide(load_f32(source + offset), total)
            shift = load_f32(bias + own * vectors * 64 + offset) if bias else zero_f32()
            store_f32(out + offset, add(value, shift))


@inline
def end(args: CachedTokens, batch: int, head: int, is_first: int, is_last: int, has_seen: int, workspace: int) -> None:
    """What comes of the state: the result where it is of all keys, else it is left for ``combine``."""
    result, nbytes = _state(args, workspace), _state_bytes(args)
    # A window may hide all keys of a block: then nothing has written the result.
    if not has_seen:
        clear(result, args.group * args.tokens * args.value_size * 4)
    if is_first and is_last:
        _finish(args, batch, head, result)
    else:
        # A thread leaves at most two: of the head whose keys it ends with, and of the one whose keys it begins with.
        copy(result, result + (1 + is_first) * nbytes, nbytes)


@inline
def is_copied(args: CachedTokens) -> Any:
    """Whether the past is copied to the cache meanwhile."""
    return args.appends and not args.is_in_place


@inline
def visible_keys(args: CachedTokens, batch: int) -> Any:
    """First key, a multiple of ``KEY_BLOCK``, and end of those that some query of a sequence sees."""
    keys, position, left, right = key_count(args, batch), first_position(args, batch), args.left, args.right
    # A multiple of the block: where the past is copied, blocks are counted from key 0, and have to be the same.
    first = max(0, position - left) // KEY_BLOCK * KEY_BLOCK if left >= 0 else 0
    stop = min(keys, position + args.tokens + right) if right >= 0 else keys
    return first, max(first, stop)


@inline
def shared_keys(args: CachedTokens, batch: int) -> Any:
    """First key and end of those that threads share: all that are attended or copied."""
    if is_copied(args):
        return 0, key_count(args, batch)
    return visible_keys(args, batch)


@inline
def block_count(args: CachedTokens, batch: int) -> Any:
    """Blocks of keys of a head that threads share. The last is longer where new keys are: who attends them appends them."""
    first, stop = shared_keys(args, batch)
    # Else a thread could attend a new key before the thread that appends it has written it: no barrier is needed so.
    last = min(append_start(args, batch), stop - 1) if args.appends else stop - 1
    return max(0, last - first) // KEY_BLOCK + 1


@inline
def all_blocks(args: CachedTokens) -> Any:
    """Of all heads of keys."""
    total = 0
    for batch in range(args.batch):
        total += block_count(args, batch) * args.key_heads
    return total


@inline
def _add_state(args: CachedTokens, source: int, target: int) -> None:
    """Combine a state with that of other keys of the same queries."""
    rows, vectors = args.group * args.tokens, args.value_size // 16
    for row in range(rows):
        own, other = target + rows * vectors * 64 + row * 8, source + rows * vectors * 64 + row * 8
        top = maximum(broadcast_f32(own), broadcast_f32(other))
        shrink, grow = exp_nonpositive(subtract(broadcast_f32(own), top)), exp_nonpositive(subtract(broadcast_f32(other), top))
        for offset in range(row * vectors * 64, (row + 1) * vectors * 64, 64):
            value = multiply(load_f32(target + offset), shrink)
            store_f32(target + offset, fused_multiply_add(load_f32(source + offset), grow, value))
        sums = multiply(broadcast_f32(own + 4), shrink)
        store_f32_masked(own + 4, fused_multiply_add(broadcast_f32(other + 4), grow, sums), 1)
        store_f32_masked(own, top, 1)


@inline
def combine(args: CachedTokens, threads: int) -> None:
    """The results of heads whose keys several threads have attended, by the thread that ends last: no thread waits for others."""
    # An atomic counter in place of a barrier: nobody waits, and whoever comes last finds all states written.
    if count_arrival(args.arrived) < threads - 1:
        return
    write_i64(args.arrived, 0)
    total, base, thread = all_blocks(args), 0, 0
    state, nbytes = _state(args, args.workspace), _state_bytes(args)
    for batch in range(args.batch):
        blocks = block_count(args, batch)
        for head in range(args.key_heads):
            while total * (thread + 1) // threads <= base:
                thread += 1
            if total * (thread + 1) // threads < base + blocks:
                target = state + thread * args.thread_bytes + 2 * nbytes
                while total * (thread + 1) // threads < base + blocks:
                    thread += 1
                    if total * thread // threads < total * (thread + 1) // threads:
                        _add_state(args, state + thread * args.thread_bytes + nbytes, target)
                _finish(args, batch, head, target)
            base += blocks


@inline
def _attend(args: CachedTokens, batch: int, head: int, first: int, stop: int, blocks: int, workspace: int) -> None:
    """Some of the blocks of a head of keys."""
    (from_key, keys), (low, high) = shared_keys(args, batch), visible_keys(args, batch)
    until = keys if stop == blocks else from_key + stop * KEY_BLOCK
    past = min(append_start(args, batch), args.past_rows) if is_copied(args) else 0
    k_row, v_row = args.keys.row_stride, args.values.row_stride
    begin(args, batch, head, int(first == 0), workspace)
    is_first = 1
    for key in range(from_key + first * KEY_BLOCK, until, KEY_BLOCK):
        copy_past(args, 4, batch, head, key, min(past, key + KEY_BLOCK, until))
        count = min(KEY_BLOCK, min(until, high) - key)
        if count > 0 and key >= low:
            k, v = row_of(args.keys, batch, head, key), row_of(args.values, batch, head, key)
            attend_keys(args, batch, head, key, count, workspace, is_first, k, k_row, v, v_row, KEY_BLOCK * k_row)
            is_first = 0
    end(args, batch, head, int(first == 0), int(stop == blocks), 1 - is_first, workspace)


@task
def decode_attention(args: DecodeAttention, thread: int, threads: int) -> None:
    """Attention of few queries; each thread has a range of blocks of keys. Sizes of keys and values are multiples of 16."""
    workspace = args.workspace + thread * args.thread_bytes
    total, base = all_blocks(args), 0
    low, high = total * thread // threads, total * (thread + 1) // threads
    for batch in range(args.batch):
        blocks = block_count(args, batch)
        for head in range(args.key_heads):
            first, stop = max(low - base, 0), min(high - base, blocks)
            if first < stop:
                if stop == blocks and args.appends:
                    append_rows(args, batch, head)
                _attend(args, batch, head, first, stop, blocks, workspace)
            base += blocks
    combine(args, threads)
