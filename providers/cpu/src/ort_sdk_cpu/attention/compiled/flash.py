"""Attention in one pass over the keys: softmax(scale * Q K^T + mask) V by blocks, without a matrix of all scores.

The algorithm is FlashAttention-2's (Dao 2023; FlashAttention: Dao et al. 2022) on the online softmax (Milakov & Gimelshein 2018).
For each block of 32 queries it goes once through the keys, 128 at a time, and keeps for each query the largest score so far m,
the sum of weights l = sum exp(s - m), and the result o = sum exp(s - m) v, which is not divided yet::

    S = K_block Q^T                          scores, (keys, queries)
    m' = max(m, max S)                       the largest score may grow
    P = exp(S - m'),  c = exp(m - m')        weights of the block; c corrects what was summed with the smaller m
    l = c l + sum P,  o = c o + V_block^T P

and divides o by l once, at the end. So memory does not grow with the number of keys, and no score is read twice.

All matrices in workspace are transposed, (keys, 32 queries) or (elements, 32 queries): queries are the lanes of vectors.
Then maxima and sums over keys are element-wise between vectors, no lane is ever added to another, and keys and values are read
in place, one number at a time, by the GEMM micro-kernel that broadcasts one operand.

Sizes of blocks: 32 queries are two vectors, the width of the micro-kernel's register tile with AVX-512 (two tiles elsewhere). The
scores of 128 keys are then 16 KiB, which with queries and result of heads of 64 (8 KiB each) fill a first-level cache of 32 KiB:
all of it is gone through several times per block. Keys and values come from the second level, once per block of queries. Heads,
samples and blocks of queries are independent, and shared evenly among the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.arguments.flash import KEY_BLOCK, QUERIES, QUERY_BYTES, TRANSPOSED_BYTES, FlashAttention
from ort_sdk_cpu.gemm.microkernels.sgemm import MR, NR_VECTORS, strided_tile
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import (
    add,
    divide,
    fused_multiply_add,
    maximum,
    multiply,
    select_less,
    splat_f32,
    subtract,
    zero_f32,
)
from ort_sdk_cpu.simd.math import exp_nonpositive, tanh
from ort_sdk_cpu.simd.memory import broadcast_f32, load_f32, read_i64, store_f32, store_f32_masked, write_f32
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .mask import add_mask, hidden_behind, query_stride_of, square_of_reach, sum_of_squares
from .operands import bias_row, row_of

__all__ = ["flash_attention"]

_TILE_BYTES = 64 * NR_VECTORS
"""Of the queries of a tile."""
_SUMMED = 8
"""Weights whose sum is added as one: the rounding error of a sum grows with its longest chain of additions (Higham 1993), and
that is 8 + 16 here, not 128."""
_LOWEST, _HIDDEN = np.finfo(np.float32).min, np.float32(-np.inf)
_TINY = np.float32(1e-30)
"""Below the sum of any softmax: a query that sees no key has the sum 0, and its result is 0 / 1e-30 = 0."""


@inline
def _pack_queries(q: int, stride: int, count: int, size: int, bias: int, factor: float, packed: int, workspace: int) -> None:
    """(q + bias) * factor as (size, 32). Columns of queries that are not there are copies of others, and are not written out."""
    factors = splat_f32(factor)
    # The scale is multiplied into the queries once, in place of into all scores; a transpose makes queries lanes.
    for half in range(2):
        first = half * 16 if count > 16 else 0
        for element in range(0, size, 16):
            transpose_rows(q + first * stride + element * 4, stride, min(count - first, 16), size - element, workspace)
            for index in range(element, min(element + 16, size)):
                shift = broadcast_f32(bias + index * 4) if bias else zero_f32()
                value = multiply(add(load_f32(workspace + (index - element) * 64), shift), factors)
                store_f32(packed + index * QUERY_BYTES + half * 64, value)


@inline
def _gemm(m: int, a: int, a_row: int, a_k: int, b: int, k: int, c: int, is_first: int) -> None:
    """C += A B, or C = A B if ``is_first``: A (m, k) by its strides in bytes, B (k, 32) and C (m, 32) in workspace."""
    tiles = (m + MR - 1) // MR
    # Rows are shared evenly: a last tile of a row or two would wait for each of its multiplications.
    for index in range(tiles):
        first = m * index // tiles
        rows, target = m * (index + 1) // tiles - first, c + first * QUERY_BYTES
        for column in range(0, QUERY_BYTES, _TILE_BYTES):
            strided_tile(rows, b + column, QUERY_BYTES, a + first * a_row, a_row, a_k, k, target + column, QUERY_BYTES, is_first)


@inline
def _cap(scores: int, keys: int, cap: float) -> None:
    """Scores bounded smoothly to a cap of either sign (Gemma 2's soft-capping)."""
    caps = splat_f32(cap)
    for row in range(scores, scores + keys * QUERY_BYTES, 64):
        store_f32(row, multiply(tanh(divide(load_f32(row), caps)), caps))


@inline
def _hide(scores: int, keys: int, distance: int, left: int, right: int, workspace: int) -> None:
    """Hide keys outside of their queries' windows; the first key is ``distance`` positions after the first query."""
    # Positions as float32 are exact up to 2**24, far beyond the keys of a sequence in memory.
    for query in range(QUERIES):
        write_f32(workspace + query * 4, np.float32(query))
    hidden = splat_f32(_HIDDEN)
    for key in range(keys):
        position = splat_f32(np.float32(distance + key))
        for half in range(0, QUERY_BYTES, 64):
            own, value = load_f32(workspace + half), load_f32(scores + key * QUERY_BYTES + half)
            if right >= 0:
                value = select_less(add(own, splat_f32(np.float32(right))), position, hidden, value)
            if left >= 0:
                value = select_less(position, subtract(own, splat_f32(np.float32(left))), hidden, value)
            store_f32(scores + key * QUERY_BYTES + half, value)


@inline
def _weight(score: int, largest: Any) -> Any:
    """Weights of a key in the place of its scores."""
    weight = exp_nonpositive(subtract(load_f32(score), largest))
    store_f32(score, weight)
    return weight


@inline
def _online_softmax(scores: int, keys: int, state: int, half: int) -> Any:
    """Weights of a block in the place of its scores, for 16 queries; returns the correction of earlier results.

    State: the largest scores of all queries, and behind them their sums of weights.
    """
    before, start = load_f32(state + half), scores + half
    largest = before
    for row in range(start, start + keys * QUERY_BYTES, QUERY_BYTES):
        largest = maximum(load_f32(row), largest)
    correction, total = exp_nonpositive(subtract(before, largest)), zero_f32()
    # Two passes over the scores, for the maximum and for the weights: they are in the first-level cache.
    whole = start + keys // _SUMMED * _SUMMED * QUERY_BYTES
    for first in range(start, whole, _SUMMED * QUERY_BYTES):
        part = _weight(first, largest)
        for row in range(first + QUERY_BYTES, first + _SUMMED * QUERY_BYTES, QUERY_BYTES):
            part = add(part, _weight(row, largest))
        total = add(total, part)
    for row in range(whole, start + keys * QUERY_BYTES, QUERY_BYTES):
        total = add(total, _weight(row, largest))
    store_f32(state + half, largest)
    sums = state + QUERY_BYTES + half
    store_f32(sums, fused_multiply_add(load_f32(sums), correction, total))
    return correction


@inline
def _correct(result: int, size: int, first: Any, second: Any) -> None:
    """Multiply what was summed so far with the corrections of both vectors of queries."""
    for row in range(result, result + size * QUERY_BYTES, QUERY_BYTES):
        store_f32(row, multiply(load_f32(row), first))
        store_f32(row + 64, multiply(load_f32(row + 64), second))


@inline
def _clear(result: int, size: int) -> None:
    for row in range(result, result + size * QUERY_BYTES, 64):
        store_f32(row, zero_f32())


@inline
def _write(result: int, sums: int, size: int, bias: int, out: int, stride: int, count: int, workspace: int) -> None:
    """The result (size, 32) over its sums, plus a bias, as rows of ``out``."""
    for half in range(0, count, 16):
        # Divided once, at the end, in place of all weights of each block (FlashAttention-2).
        total = maximum(load_f32(sums + half * 4), splat_f32(_TINY))
        for element in range(0, size, 16):
            found = min(16, size - element)
            for index in range(found):
                shift = broadcast_f32(bias + (element + index) * 4) if bias else zero_f32()
                value = divide(load_f32(result + (element + index) * QUERY_BYTES + half * 4), total)
                store_f32(workspace + index * 64, add(value, shift))
            transpose_rows(workspace, 64, found, 16, workspace + 1024)
            for row in range(min(16, count - half)):
                store_f32_masked(out + (half + row) * stride + element * 4, load_f32(workspace + 1024 + row * 64), found)


@inline
def _head_bias(bias: int, head: int, size: int) -> Any:
    return bias + head * size * 4 if bias else 0


@inline
def _key_range(args: FlashAttention, batch: int, start: int, count: int) -> Any:
    """(position of the first query of a block, first key that one of them sees, end of those keys)."""
    positions, left, right = args.cache_positions, args.left, args.right
    if not positions:
        return 0, 0, args.keys
    position, keys = read_i64(positions + (batch * 3 + 1) * 8) + start, read_i64(positions + (batch * 3 + 2) * 8)
    # Read at run time, so it is bounded before it says where memory is read.
    keys = min(keys, args.keys)
    low = max(0, position - left) if left >= 0 else 0
    return position, low, min(keys, position + count + right) if right >= 0 else keys


@inline
def _begin(sinks: int, head: int, state: int) -> None:
    """Largest scores and sums before any key. A sink is a key that was seen already: its score s weighs exp(s - s) = 1."""
    for half in range(0, QUERY_BYTES, 64):
        store_f32(state + half, broadcast_f32(sinks + head * 4) if sinks else splat_f32(_LOWEST))
        store_f32(state + QUERY_BYTES + half, splat_f32(np.float32(1)) if sinks else zero_f32())


@inline
def _attend_block(
    args: FlashAttention,
    batch: int,
    head: int,
    start: int,
    count: int,
    workspace: int,
    query_stride: int,
    seen: int,
    reach: float,
) -> None:
    """A block of queries of a head.

    ``query_stride`` is the mask's; where ``reach`` proves it, only the first ``seen`` keys have weights: see ``mask``.
    """
    size, value_size, left, right = args.head_size, args.value_size, args.left, args.right
    packed, scores = workspace + TRANSPOSED_BYTES, workspace + TRANSPOSED_BYTES + size * QUERY_BYTES
    result, state = scores + KEY_BLOCK * QUERY_BYTES, scores + (KEY_BLOCK + value_size) * QUERY_BYTES
    key_head, k_row, v_row = head // args.group, args.k.row_stride, args.v.row_stride
    k, v = row_of(args.k, batch, key_head, 0), row_of(args.v, batch, key_head, 0)
    mask, key_stride = bias_row(args.mask, batch, head, start), args.mask.key_stride
    q, q_bias = row_of(args.q, batch, head, start), _head_bias(args.q_bias, head, size)
    _pack_queries(q, args.q.row_stride, count, size, q_bias, args.scale, packed, workspace)
    _begin(args.sinks, head, state)
    position, low, high = _key_range(args, batch, start, count)
    if reach >= np.float32(0) and sum_of_squares(packed, QUERY_BYTES, size, QUERIES) * reach < np.float32(1):
        high = min(high, seen)
    if high <= low:
        _clear(result, value_size)
    for key in range(low, high, KEY_BLOCK):
        found = min(KEY_BLOCK, high - key)
        _gemm(found, k + key * k_row, k_row, 4, packed, size, scores, 1)
        if args.softcap > 0:
            _cap(scores, found, args.softcap)
        if mask:
            add_mask(mask + key * key_stride, query_stride, key_stride, count, found, scores, workspace)
        # Only blocks at the edges of a window have keys outside of it. Causal attention never meets blocks of keys after all of
        # its queries: ``high`` ends the loop before them.
        if (right >= 0 and key + found > position + right + 1) or (left >= 0 and key < position + count - 1 - left):
            _hide(scores, found, key - position, left, right, workspace)
        first, second = _online_softmax(scores, found, state, 0), _online_softmax(scores, found, state, 64)
        if key > low:
            _correct(result, value_size, first, second)
        _gemm(value_size, v + key * v_row, 4, v_row, scores, found, result, int(key == low))
    out, v_bias = row_of(args.out, batch, head, start), _head_bias(args.v_bias, head, value_size)
    _write(result, state + QUERY_BYTES, value_size, v_bias, out, args.out.row_stride, count, workspace)


@task
def flash_attention(args: FlashAttention, thread: int, threads: int) -> None:
    """Attention of any number of queries; each thread has a range of blocks of queries."""
    heads, queries = args.heads, args.queries
    blocks = (queries + QUERIES - 1) // QUERIES
    items = args.batch * heads * blocks
    low, high = items * thread // threads, items * (thread + 1) // threads
    workspace = args.workspace + thread * args.thread_bytes
    sees_all = not args.cache_positions and args.left < 0 and args.right < 0
    met, query_stride, seen, lower, reach = 0, 0, 0, np.float32(0), np.float32(np.nan)
    # Blocks of one head follow each other in a thread: its keys and values stay in the second-level cache.
    for item in range(low, high):
        start = item % blocks * QUERIES
        batch, head = item // blocks // heads, item // blocks % heads
        mask = bias_row(args.mask, batch, head, 0)
        # A mask is looked at once: mostly it is the same for all heads.
        if mask and (item == low or mask != met):
            met, query_stride, seen, lower = mask, query_stride_of(args, mask), args.keys, np.float32(0)
            if not query_stride and sees_all:
                seen, lower = hidden_behind(mask, args.mask.key_stride, seen)
        if lower > 0 and (item == low or start == 0):
            reach = square_of_reach(args, batch, head, seen, lower)
        _attend_block(args, batch, head, start, min(QUERIES, queries - start), workspace, query_stride, seen, reach)
