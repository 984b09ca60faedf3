"""Additive masks of flash attention: how they are added, and keys of padding that need not be looked at.

Encoders get texts of several lengths padded to one: the mask adds a large negative number to the scores of the padding. Such keys
have weights that are exactly 0 in float32 if their scores are lower than another one's by more than 104, the negative logarithm
of the smallest float32. That is proved before they are left out. By Cauchy and Schwarz no product of a query and a key is larger
than the product of their lengths. If that is below a third of the difference d that the mask makes, visible and hidden scores
differ by more than d / 3 whatever they are, and d is at least 1000 here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.arguments.flash import QUERY_BYTES, FlashAttention
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.simd.arithmetic import (
    add,
    any_different,
    fused_multiply_add,
    maximum,
    reduce_add,
    reduce_max,
    splat_f32,
    zero_f32,
)
from ort_sdk_cpu.simd.memory import (
    broadcast_f32,
    load_f32,
    load_f32_masked,
    load_f32_masked_or,
    load_f32_strided,
    load_i32_masked,
    read_f32,
    store_f32,
)
from ort_sdk_cpu.simd.shuffles import transpose_rows

from .operands import row_of

__all__ = ["add_mask", "hidden_behind", "query_stride_of", "square_of_reach", "sum_of_squares"]

_HIDDEN = np.float32(-np.inf)
_HIDING = np.float32(-1000)
"""Added to a score, beside the largest number that is added to one: a key that may be hidden."""
_FEWEST_HIDDEN = 8
"""Keys from which leaving them out is worth the sums of squares of all queries and keys."""


@inline
def _add_vectors(scores: int, first: Any, second: Any) -> None:
    store_f32(scores, add(load_f32(scores), first))
    store_f32(scores + 64, add(load_f32(scores + 64), second))


@inline
def _add_of_keys(mask: int, key_stride: int, keys: int, scores: int) -> None:
    """A mask with one element for each key, whatever the query."""
    for key in range(keys):
        value = broadcast_f32(mask + key * key_stride)
        _add_vectors(scores + key * QUERY_BYTES, value, value)


@inline
def _add_gathered(mask: int, query_stride: int, key_stride: int, queries: int, keys: int, scores: int) -> None:
    """A mask of any strides, element by element."""
    # A gather of 16 numbers takes as many loads: this is for masks that are broadcast or transposed otherwise.
    for key in range(keys):
        own = mask + key * key_stride
        first = load_f32_strided(own, query_stride, min(queries, 16))
        second = load_f32_strided(own + 16 * query_stride, query_stride, queries - 16) if queries > 16 else first
        _add_vectors(scores + key * QUERY_BYTES, first, second)


@inline
def _add_rows(mask: int, query_stride: int, queries: int, keys: int, scores: int, workspace: int) -> None:
    """A mask whose keys are contiguous: transposed by tiles of 16 * 16, as scores are."""
    for key in range(0, keys, 16):
        own = mask + key * 4
        transpose_rows(own, query_stride, min(queries, 16), keys - key, workspace)
        if queries > 16:
            transpose_rows(own + 16 * query_stride, query_stride, queries - 16, keys - key, workspace + 1024)
        second = workspace + 1024 if queries > 16 else workspace
        for index in range(min(16, keys - key)):
            _add_vectors(scores + (key + index) * QUERY_BYTES, load_f32(workspace + index * 64), load_f32(second + index * 64))


@inline
def add_mask(mask: int, query_stride: int, key_stride: int, queries: int, keys: int, scores: int, workspace: int) -> None:
    """Add a block of a mask to its scores (keys, 32); ``query_stride`` 0: it is the same for all queries."""
    if not query_stride:
        _add_of_keys(mask, key_stride, keys, scores)
    elif key_stride == 4:
        _add_rows(mask, query_stride, queries, keys, scores, workspace)
    else:
        _add_gathered(mask, query_stride, key_stride, queries, keys, scores)


@inline
def query_stride_of(args: FlashAttention, mask: int) -> Any:
    """Bytes from query to query of a mask; 0 if it is the same for all queries.

    Exporters expand a mask of keys to all queries. Comparing it once takes less than transposing it for each head.
    """
    queries, keys, stride = args.queries, args.keys, args.mask.query_stride
    if args.mask.key_stride != 4:
        return stride
    # Bits are compared: NaN is equal to itself then, and -0 is another number, which is safe.
    for query in range(1, queries):
        for key in range(0, keys, 16):
            own, left = mask + key * 4, keys - key
            if any_different(load_i32_masked(own, left), load_i32_masked(own + query * stride, left)):
                return stride
    return 0


@inline
def hidden_behind(mask: int, key_stride: int, keys: int) -> Any:
    """(keys up to the last visible one, by how much the mask of those after it is lower than its largest element).

    All keys and 0 where few are hidden.
    """
    if key_stride != 4:
        return keys, np.float32(0)
    lowest = splat_f32(_HIDDEN)
    vector = lowest
    for key in range(0, keys, 16):
        vector = maximum(load_f32_masked_or(mask + key * 4, keys - key, lowest), vector)
    largest, seen, hidden = reduce_max(vector), keys, _HIDDEN
    # From the end: padding follows the text. One visible key among it ends the search.
    while seen > 0 and read_f32(mask + seen * 4 - 4) <= largest + _HIDING:
        seen -= 1
        hidden = max(hidden, read_f32(mask + seen * 4))
    if keys - seen < _FEWEST_HIDDEN:
        return keys, np.float32(0)
    return seen, largest - hidden


@inline
def sum_of_squares(x: int, stride: int, rows: int, size: int) -> Any:
    """Of all elements of some rows: not below the square of the length of any row or column."""
    # Two sums, so that a multiply-add need not wait for the one before.
    first, second = zero_f32(), zero_f32()
    for row in range(x, x + rows * stride, stride):
        for element in range(0, size, 32):
            here = load_f32_masked(row + element * 4, size - element)
            first = fused_multiply_add(here, here, first)
            if size - element > 16:
                there = load_f32_masked(row + element * 4 + 64, size - element - 16)
                second = fused_multiply_add(there, there, second)
    return reduce_add(add(first, second))


@inline
def square_of_reach(args: FlashAttention, batch: int, head: int, seen: int, lower: float) -> Any:
    """(length of a head's keys / (lower / 3))^2.

    Where this times the square of a query's length is below 1, none of its scores is a third of ``lower``. NaN if a hidden value
    is not finite: 0 times it would not be 0, so it may not be left out.
    """
    key_head, keys, v_row = head // args.group, args.keys, args.v.row_stride
    k, v = row_of(args.k, batch, key_head, 0), row_of(args.v, batch, key_head, 0)
    # A weight of 0 times a value that is infinite or NaN is NaN: such values are looked at, and leave nothing out.
    values = sum_of_squares(v + seen * v_row, v_row, keys - seen, args.value_size)
    squares = sum_of_squares(k, args.k.row_stride, keys, args.head_size) + values * np.float32(0)
    return squares * (np.float32(3) / lower) ** 2
