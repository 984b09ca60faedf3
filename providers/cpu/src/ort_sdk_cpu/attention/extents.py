"""Attention, over a cache of keys and values and without one."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk_cpu.jit.extents.declaration import (
    At,
    Extent,
    Extents,
    MayBeAt,
    at_most,
    declares,
    given,
    reaches,
    reads,
    whole_vectors,
    works,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, VECTOR

__all__: list[str] = []

_HALF, _INT32 = 2, 4
_ROW, _BLOCK, _SPARE = 128, 128, 2048
"""Bytes of 32 queries, keys at a time, and bytes for what is transposed, of ``attention``."""
_KEYS = 64
"""Keys at a time of ``attend_few`` and ``attend_halves``."""
_COUNTS = 3
"""Numbers of each sequence."""


@declares("attention", "attention")
def _attention(
    q: At,
    q_batch: int,
    q_head: int,
    q_row: int,
    k: At,
    k_batch: int,
    k_head: int,
    k_row: int,
    v: At,
    v_batch: int,
    v_head: int,
    v_row: int,
    out: At,
    out_batch: int,
    out_head: int,
    out_row: int,
    mask: At,
    mask_batch: int,
    mask_head: int,
    mask_row: int,
    mask_key: int,
    q_bias: At,
    v_bias: At,
    heads: int,
    queries: int,
    keys: int,
    size: int,
    value_size: int,
    scale: float,
    batch: int,
    work: At,
    part_bytes: int,
    group: int,
    counts: At,
    left: int,
    right: int,
    sinks: At,
    cap: float,
    *,
    parts: int,
) -> Extents:
    key_heads = -(-heads // group)
    yield reaches(q, (batch, heads, queries, size), (q_batch, q_head, q_row, FLOAT), FLOAT)
    yield reaches(k, (batch, key_heads, keys, size), (k_batch, k_head, k_row, FLOAT), FLOAT)
    yield reaches(v, (batch, key_heads, keys, value_size), (v_batch, v_head, v_row, FLOAT), FLOAT)
    each = (batch, heads, queries, value_size)
    yield reaches(out, each, (out_batch, out_head, out_row, FLOAT), FLOAT, is_written=True)
    scores, steps = (batch, heads, queries, keys), (mask_batch, mask_head, mask_row, mask_key)
    yield reaches(mask, scores, steps, FLOAT, may_be_none=True)
    yield given(q_bias, heads * size * FLOAT)
    yield given(v_bias, heads * value_size * FLOAT)
    yield works(work, (parts - 1) * part_bytes + (size + value_size + _BLOCK + 2) * _ROW + _SPARE)
    yield given(counts, batch * _COUNTS * INT64)
    yield given(sinks, heads * FLOAT)


def _rotation(cos: int, sin: int, ids: int, row: int, pairs: int, rows: int, tokens: int) -> Extents:
    """Numbers to rotate by, and the row of each token."""
    if pairs > 0:
        yield reads(cos, (rows - 1) * row + pairs * FLOAT)
        yield reads(sin, (rows - 1) * row + pairs * FLOAT)
        yield given(ids, tokens * INT64)


def _rows_to_clear(at: int, steps: tuple[int, int, int], sizes: tuple[int, int, int, int], itemsize: int) -> Extent:
    """Rows of a cache, which are cleared as if they had no gaps."""
    batch, heads, rows, size = sizes
    apart = reaches(at, sizes, (*steps, itemsize), itemsize, is_written=True)
    close = reaches(at, (batch, heads), steps[:2], rows * size * itemsize, is_written=True)
    return max(apart, close, key=lambda extent: extent.behind)


class _Sizes(NamedTuple):
    """Of an attention over a cache."""

    batch: int
    key_heads: int
    heads: int
    length: int
    new: int
    size: int
    value_size: int
    capacity: int
    itemsize: int
    """Of the cache."""


def _cache(at: int, steps: tuple[int, int, int], width: int, sizes: _Sizes, *, is_filling: bool, is_read: bool) -> Extents:
    """Keys, or values."""
    rows = (sizes.batch, sizes.key_heads, sizes.capacity, width)
    if is_filling:
        yield _rows_to_clear(at, steps, rows, sizes.itemsize)
    elif is_read:
        yield reaches(at, rows, (*steps, sizes.itemsize), sizes.itemsize)


def _bytes_of_few(sizes: _Sizes) -> int:
    """Working memory of a thread that attends few queries, and leaves two heads' sums to be combined.

    Of a cache of float16, a block in float32 is behind that.
    """
    rows, size, value_size = sizes.heads // sizes.key_heads * sizes.length, sizes.size, sizes.value_size
    few = VECTOR + rows * (size + _KEYS + 3 * (value_size + 2)) * FLOAT
    if sizes.itemsize != _HALF:
        return few
    whole_vectors(size, value_size)
    return few + _KEYS * (size + value_size) * FLOAT


def _cached(module: str, name: str) -> None:
    is_half = module == "half_caches"
    itemsize = _HALF if is_half else FLOAT

    @declares(module, name)
    def extents(
        q: At,
        q_batch: int,
        q_head: int,
        q_row: int,
        k: At,
        k_batch: int,
        k_head: int,
        k_row: int,
        v: At,
        v_batch: int,
        v_head: int,
        v_row: int,
        past_k: MayBeAt,
        past_k_batch: int,
        past_k_head: int,
        past_v: At,
        past_v_batch: int,
        past_v_head: int,
        keys: At,
        keys_batch: int,
        keys_head: int,
        keys_row: int,
        values: At,
        values_batch: int,
        values_head: int,
        values_row: int,
        out: At,
        out_batch: int,
        out_head: int,
        out_row: int,
        mask: At,
        mask_batch: int,
        mask_head: int,
        mask_row: int,
        mask_key: int,
        q_bias: At,
        k_bias: At,
        v_bias: At,
        cos: At,
        sin: At,
        row: int,
        pairs: int,
        is_interleaved: int,
        ids: At,
        rows: int,
        counts: MayBeAt,
        sinks: At,
        batch: int,
        key_heads: int,
        group: int,
        length: int,
        size: int,
        value_size: int,
        left: int,
        right: int,
        past_rows: int,
        capacity: int,
        has_cache: int,
        is_in_place: int,
        ended: int,
        fills: int,
        work: At,
        part_bytes: int,
        rotated: MayBeAt,
        scale: float,
        cap: float,
        new: int,
        most_keys: int,
        *,
        parts: int,
    ) -> Extents:
        is_few = name in {"attend_few", "attend_halves"}
        is_filling = bool(fills if is_few else has_cache and name == "extend")
        sizes = _Sizes(batch, key_heads, key_heads * group, length, new, size, value_size, capacity, itemsize)
        tokens = max(length, new) if is_filling else length
        yield from _rotation(cos, sin, ids, row, pairs, rows, (batch - 1) * length + tokens)
        if name != "rotate" or (pairs and counts.is_given):
            yield reads(counts, batch * _COUNTS * INT64)
        if is_few or name == "rotate" or (name == "extend" and rotated.is_given):
            yield reaches(q, (batch, sizes.heads, length, size), (q_batch, q_head, q_row, FLOAT), FLOAT)
            yield given(q_bias, sizes.heads * size * FLOAT)
        if is_few or name == "rotate":
            each = (batch, sizes.heads, length, value_size if is_few else size)
            yield reaches(out, each, (out_batch, out_head, out_row, FLOAT), FLOAT, is_written=True)
        if name == "extend" and rotated.is_given:
            yield writes(rotated, batch * sizes.heads * length * size * FLOAT)
        yield from _cache(keys, (keys_batch, keys_head, keys_row), size, sizes, is_filling=is_filling, is_read=is_few)
        yield from _cache(
            values, (values_batch, values_head, values_row), value_size, sizes, is_filling=is_filling, is_read=is_few
        )
        if is_filling:
            yield reaches(k, (batch, key_heads, new, size), (k_batch, k_head, k_row, FLOAT), FLOAT)
            yield reaches(v, (batch, key_heads, new, value_size), (v_batch, v_head, v_row, FLOAT), FLOAT)
            if not is_half:
                yield given(k_bias, key_heads * size * FLOAT)
                yield given(v_bias, key_heads * value_size * FLOAT)
            if past_rows and not is_in_place:
                yield reaches(past_k, (batch, key_heads), (past_k_batch, past_k_head), past_rows * size * itemsize)
                yield reaches(past_v, (batch, key_heads), (past_v_batch, past_v_head), past_rows * value_size * itemsize)
        if is_few:
            at_most("keys", most_keys, capacity)
            scores, along = (batch, sizes.heads, length, most_keys), (mask_batch, mask_head, mask_row, mask_key)
            yield reaches(mask, scores, along, FLOAT, may_be_none=True)
            yield given(sinks, sizes.heads * FLOAT)
            if not has_cache and not is_filling:
                yield given(v_bias, sizes.heads * value_size * FLOAT)
            at_most("bytes of a thread", _bytes_of_few(sizes), part_bytes)
            yield works(work, parts * part_bytes)


for _name in ("attend_few", "extend", "rotate"):
    _cached("cached_attention", _name)
_cached("half_caches", "attend_halves")


@declares("attention_inputs", "count_tokens")
def _count_tokens(
    failed: int, lasts: At, batch: int, new: int, longest: int, past_rows: int, is_causal: int, counts: At
) -> Extents:
    return reads(lasts, batch * _INT32), writes(counts, batch * _COUNTS * INT64)


@declares("attention_inputs", "count_from")
def _count_from(failed: int, position: At, batch: int, length: int, rows: int, counts: At) -> Extents:
    return reads(position, INT64), writes(counts, batch * _COUNTS * INT64)


@declares("attention_inputs", "check_rows")
def _check_rows(failed: int, numbers: At, count: int, rows: int) -> Extents:
    return (reads(numbers, count * INT64),)


@declares("attention_inputs", "check_lengths")
def _check_lengths(failed: int, lengths: At, count: int, most: int) -> Extents:
    return (reads(lengths, count * _INT32),)


@declares("attention_inputs", "mask_numbers")
def _mask_numbers(mask: At, count: int, out: At, number: float) -> Extents:
    return reads(mask, count * _INT32), writes(out, count * FLOAT)


@declares("attention_inputs", "end_numbers")
def _end_numbers(ends: At, batch: int, keys: int, out: At, number: float) -> Extents:
    return reads(ends, batch * _INT32), writes(out, batch * keys * FLOAT)
