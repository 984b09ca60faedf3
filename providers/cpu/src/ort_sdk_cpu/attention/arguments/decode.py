"""Arguments of attention of few queries over a key-value cache, and of what fills the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk_cpu.jit.arguments import Counter, NullablePointer, Pointer
from ort_sdk_cpu.jit.extents.declaration import (
    Extent,
    Extents,
    accesses,
    reads,
    reads_if_given,
    require_at_most,
    uses_workspace,
    writes,
)
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64, VECTOR, round_up

from .operands import ABSENT, CACHE_POSITIONS, NO_BIAS, CacheRows, HeadRows, ScoreBias, Tokens

__all__ = ["KEY_BLOCK", "MODULE", "NO_PAST", "AppendToCache", "CachedTokens", "DecodeAttention", "thread_workspace_bytes"]

MODULE = "attention.decode"

KEY_BLOCK = 64
"""Keys of a block."""
NO_PAST = ((None, 0, 0), (None, 0, 0))
"""Words of ``past_keys`` and ``past_values`` where there are none."""
_STATES = 3
"""Results with largest scores and sums in a thread's workspace: of the head it is at, and of two that others share."""


def thread_workspace_bytes(rows: int, head_size: int, value_size: int) -> int:
    """Bytes of workspace of a thread that attends so many queries of a head of keys at once.

    These are, one behind the other: a vector that hides scores; queries (rows, head size); scores of a block (rows, 64); three
    states, each a result (rows, value size) with a largest score and a sum for each row.
    """
    nbytes = VECTOR + rows * (head_size + KEY_BLOCK + _STATES * (value_size + 2)) * FLOAT
    # Whole cache lines, so that no two threads write to one.
    return round_up(nbytes, VECTOR)


class CachedTokens(Tokens):
    """What all tasks over a cache take. Keys and values of a head of keys are read by ``group`` heads of queries."""

    q: HeadRows
    """float32 (batch, key_heads * group, tokens, head_size)."""
    k: HeadRows
    """New keys, float32 (batch, key_heads, new_tokens, head_size)."""
    v: HeadRows
    """New values, float32 (batch, key_heads, new_tokens, value_size)."""
    past_keys: CacheRows
    """(batch, key_heads, past_rows, head_size), of the cache's type as the next three."""
    past_values: CacheRows
    """(batch, key_heads, past_rows, value_size)."""
    keys: HeadRows
    """What is attended, (batch, key_heads, capacity, head_size): the cache, or keys that others made."""
    values: HeadRows
    """(batch, key_heads, capacity, value_size)."""
    out: HeadRows
    """float32 (batch, key_heads * group, tokens, value_size)."""
    mask: ScoreBias
    q_bias: Pointer
    """float32 (key_heads * group * head_size), or 0 for none."""
    k_bias: Pointer
    """float32 (key_heads * head_size), or 0 for none."""
    v_bias: Pointer
    """float32 (key_heads * value_size), or 0 for none."""
    sinks: Pointer
    """float32 (key_heads * group): a score without a value in each softmax; 0 for none."""
    key_heads: int
    group: int
    head_size: int
    value_size: int
    left: int
    """Positions before its own that a query sees; -1 for all."""
    right: int
    """Positions after its own that it sees; -1 for all."""
    past_rows: int
    capacity: int
    """Rows of ``keys`` and ``values``."""
    appends: int
    """1: new keys and values, and those of the past, are written to ``keys`` and ``values``."""
    is_in_place: int
    """1: the cache is the past's memory, and only new rows are written."""
    arrived: Counter
    """0; threads that are done count here, and the last one makes it 0 again."""
    workspace: Pointer
    """Of all threads, at a multiple of 64 bytes."""
    thread_bytes: int
    """From one thread's workspace to the next one's."""
    rotated: NullablePointer
    """Where rotated queries go, float32 (batch, key_heads * group, tokens, head_size); 0: they are not wanted."""
    scale: float
    softcap: float
    """Scores become softcap * tanh(score / softcap); 0 for no cap."""
    new_tokens: int
    max_keys: int
    """Keys that a query sees at most, whatever ``cache_positions`` say."""

    @classmethod
    def of(
        cls,
        tokens: Sequence[Any],
        q: Sequence[Any],
        cache: tuple[Sequence[Any], Sequence[Any]],
        out: Sequence[Any],
        sizes: tuple[Any, Any, Any, Any],
        rows: tuple[Any, Any, Any, Any, Any, Any],
        *,
        workspace: tuple[Any, Any],
        factors: tuple[float, float],
        new: tuple[Sequence[Any], Sequence[Any]] = (ABSENT, ABSENT),
        past: tuple[Sequence[Any], Sequence[Any]] = NO_PAST,
        mask: Sequence[Any] = NO_BIAS,
        biases: tuple[Any, Any, Any] = (None, None, None),
        sinks: Any = None,
        window: tuple[int, int] = (-1, -1),
        rotated: Any = None,
    ) -> Any:
        """The arguments of any launch.

        Args:
            tokens: words of ``Tokens``.
            q: words of ``q``.
            cache: words of ``keys`` and ``values``.
            out: words of ``out``.
            sizes: ``key_heads`` to ``value_size``.
            rows: ``past_rows``, ``capacity``, ``appends``, ``is_in_place``, ``new_tokens`` and ``max_keys``.
            workspace: it, and ``thread_bytes``.
            factors: ``scale`` and ``softcap``.
            new: words of ``k`` and ``v``.
            past: words of ``past_keys`` and ``past_values``.
            mask: words of ``mask``.
            biases: ``q_bias``, ``k_bias`` and ``v_bias``.
            sinks: as the field.
            window: ``left`` and ``right``.
            rotated: as the field.
        """
        (k, v), (past_keys, past_values), (keys, values) = new, past, cache
        operands = (*q, *k, *v, *past_keys, *past_values, *keys, *values, *out, *mask)
        return cls.of_words(
            (*tokens, *operands, *biases, sinks, *sizes, *window, *rows[:4], 0, *workspace, rotated, *factors, *rows[4:])
        )

    def _heads(self) -> int:
        return self.key_heads * self.group

    def _read_tokens(self) -> Extents:
        """Cache positions, and the tables that rotate queries and new keys."""
        tokens = max(self.tokens, self.new_tokens) if self.appends else self.tokens
        yield from self.rotary.extents((self.batch - 1) * self.tokens + tokens)
        yield reads(self.cache_positions, self.batch * CACHE_POSITIONS * INT64)

    def _read_queries(self) -> Extents:
        yield self.q.extent(self.batch, self._heads(), self.tokens, self.head_size)
        yield reads_if_given(self.q_bias, self._heads() * self.head_size * FLOAT)

    def _append(self, itemsize: int) -> Extents:
        """New rows are read, and those of the past, and all of the cache may be written."""
        batch, heads = self.batch, self.key_heads
        yield _filled(self.keys, (batch, heads, self.capacity, self.head_size), itemsize)
        yield _filled(self.values, (batch, heads, self.capacity, self.value_size), itemsize)
        yield self.k.extent(batch, heads, self.new_tokens, self.head_size)
        yield self.v.extent(batch, heads, self.new_tokens, self.value_size)
        if self.past_rows and not self.is_in_place:
            yield self.past_keys.extent(batch, heads, self.past_rows * self.head_size * itemsize)
            yield self.past_values.extent(batch, heads, self.past_rows * self.value_size * itemsize)

    def _append_biases(self) -> Extents:
        yield reads_if_given(self.k_bias, self.key_heads * self.head_size * FLOAT)
        yield reads_if_given(self.v_bias, self.key_heads * self.value_size * FLOAT)

    def _attend(self, itemsize: int, least_bytes: int, threads: int) -> Extents:
        """The cache is read, where it is not written, and the result is written."""
        batch, heads = self.batch, self._heads()
        if not self.appends:
            yield self.keys.extent(batch, self.key_heads, self.capacity, self.head_size, itemsize)
            yield self.values.extent(batch, self.key_heads, self.capacity, self.value_size, itemsize)
        yield self.out.extent(batch, heads, self.tokens, self.value_size, is_written=True)
        require_at_most("keys", self.max_keys, self.capacity)
        yield self.mask.extent(batch, heads, self.tokens, self.max_keys)
        yield reads_if_given(self.sinks, heads * FLOAT)
        require_at_most("bytes of a thread", least_bytes, self.thread_bytes)
        yield uses_workspace(self.workspace, threads * self.thread_bytes)

    def _least_bytes(self) -> int:
        return thread_workspace_bytes(self.group * self.tokens, self.head_size, self.value_size)


def _filled(cache: HeadRows, sizes: tuple[int, int, int, int], itemsize: int) -> Extent:
    """Rows of a cache: those after new ones are cleared as if the rows of a head had no gaps."""
    batch, heads, rows, size = sizes
    strided = cache.extent(*sizes, itemsize, is_written=True)
    cleared = accesses(
        cache.base, (batch, heads), (cache.batch_stride, cache.head_stride), rows * size * itemsize, is_written=True
    )
    return max(strided, cleared, key=lambda extent: extent.behind)


class DecodeAttention(CachedTokens, module=MODULE, tasks=("decode_attention",)):
    """softmax(scale * q k^T + mask) v for few queries, while the cache is filled."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        yield from self._read_tokens()
        yield from self._read_queries()
        if self.appends:
            yield from self._append(FLOAT)
            yield from self._append_biases()
        else:
            yield reads_if_given(self.v_bias, self._heads() * self.value_size * FLOAT)
        yield from self._attend(FLOAT, self._least_bytes(), threads)


class AppendToCache(CachedTokens, module=MODULE, tasks=("append_to_cache",)):
    """New keys and values appended to those of the past, and rotated queries."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield from self._read_tokens()
        if self.rotated.is_given:
            yield from self._read_queries()
            yield writes(self.rotated, self.batch * self._heads() * self.tokens * self.head_size * FLOAT)
        if self.appends:
            yield from self._append(FLOAT)
            yield from self._append_biases()
