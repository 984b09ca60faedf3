"""Arguments of attention in one pass over the keys, and the layout of its workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads_if_given, uses_workspace
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

from .operands import CACHE_POSITIONS, NO_BIAS, HeadRows, ScoreBias

__all__ = [
    "ALL_KEYS",
    "KEY_BLOCK",
    "MODULE",
    "QUERIES",
    "QUERY_BYTES",
    "TRANSPOSED_BYTES",
    "FlashAttention",
    "thread_workspace_bytes",
]

MODULE = "attention.flash"

QUERIES = 32
"""Queries of a block: they are the columns of all matrices in workspace."""
QUERY_BYTES = QUERIES * FLOAT
KEY_BLOCK = 128
"""Keys of a block."""
TRANSPOSED_BYTES = 2048
"""For what is transposed: two tiles of 16 * 16 elements."""
ALL_KEYS = (1, None, -1, -1, None, 0.0)
"""The last arguments where all queries see all keys, no heads share any, and scores have no cap."""


def thread_workspace_bytes(head_size: int, value_size: int) -> int:
    """Bytes of workspace of a thread.

    These are, one behind the other: what is transposed; a block of queries (head size, 32); its scores (128, 32); the result
    (value size, 32); largest scores and sums (2, 32).
    """
    return TRANSPOSED_BYTES + (head_size + KEY_BLOCK + value_size + 2) * QUERY_BYTES


class FlashAttention(TaskArguments, module=MODULE, tasks=("flash_attention",)):
    """softmax(scale * (q + bias) k^T + mask) v + bias for any number of queries."""

    q: HeadRows
    k: HeadRows
    """Of key heads, as the values."""
    v: HeadRows
    out: HeadRows
    mask: ScoreBias
    q_bias: Pointer
    """float32 (heads * head_size), or 0 for none."""
    v_bias: Pointer
    """float32 (heads * value_size), or 0 for none. Keys need none: it would add the same to all scores of a query."""
    batch: int
    heads: int
    queries: int
    keys: int
    """Of each sequence, if ``cache_positions`` do not say otherwise."""
    head_size: int
    value_size: int
    scale: float
    workspace: Pointer
    """Of all threads, at a multiple of 64 bytes."""
    thread_bytes: int
    """From one thread's workspace to the next one's."""
    group: int
    """Heads of queries that share one of keys (grouped-query attention, Ainslie et al. 2023)."""
    cache_positions: Pointer
    """As of ``Tokens``; 0: positions count from 0, all sequences have ``keys``, and there is no window."""
    left: int
    """Positions before its own that a query sees; -1 for all."""
    right: int
    """Positions after its own that it sees; -1 for all, 0 for causal attention."""
    sinks: Pointer
    """float32 (heads): a score without a value that takes part in each softmax (attention sink); 0 for none."""
    softcap: float
    """Scores become softcap * tanh(score / softcap); 0 for no cap."""

    def extents(self, *, threads: int) -> Extents:
        """What is read and written."""
        batch, heads, queries, keys = self.batch, self.heads, self.queries, self.keys
        key_heads = -(-heads // self.group)
        yield self.q.extent(batch, heads, queries, self.head_size)
        yield self.k.extent(batch, key_heads, keys, self.head_size)
        yield self.v.extent(batch, key_heads, keys, self.value_size)
        yield self.out.extent(batch, heads, queries, self.value_size, is_written=True)
        yield self.mask.extent(batch, heads, queries, keys)
        yield reads_if_given(self.q_bias, heads * self.head_size * FLOAT)
        yield reads_if_given(self.v_bias, heads * self.value_size * FLOAT)
        own = thread_workspace_bytes(self.head_size, self.value_size)
        yield uses_workspace(self.workspace, (threads - 1) * self.thread_bytes + own)
        yield reads_if_given(self.cache_positions, batch * CACHE_POSITIONS * INT64)
        yield reads_if_given(self.sinks, heads * FLOAT)

    @classmethod
    def of(
        cls,
        operands: Sequence[Sequence[Any]],
        sizes: Sequence[Any],
        workspace: tuple[Any, Any],
        mask: Sequence[Any] = NO_BIAS,
        biases: tuple[Any, Any] = (None, None),
        visible: Sequence[Any] = ALL_KEYS,
    ) -> FlashAttention:
        """The arguments of any launch.

        Args:
            operands: words of ``q``, ``k``, ``v`` and ``out``.
            sizes: ``batch`` to ``scale``.
            workspace: it, and ``thread_bytes``.
            mask: words of ``mask``.
            biases: ``q_bias`` and ``v_bias``.
            visible: ``group`` to ``softcap``.
        """
        q, k, v, out = operands
        made: FlashAttention = cls.of_words((*q, *k, *v, *out, *mask, *biases, *sizes, *workspace, *visible))
        return made
