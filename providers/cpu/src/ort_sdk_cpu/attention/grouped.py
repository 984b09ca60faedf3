"""Grouped-query attention of the array namespace by the flash task: arrays are read in place."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.workspace import Workspace, shared_workspace
from ort_sdk_cpu.platform import libraries

from .arguments.flash import FlashAttention
from .arguments.operands import NO_BIAS
from .flash import AttentionShape, flash_task

__all__ = ["grouped_attention"]

FLOAT = np.dtype(np.float32)

Words = tuple[Any, ...]
"""Array, and strides in bytes: of key heads, of heads that share one, of queries (or keys); of a mask also of keys."""


def grouped_attention(q: HostArray, k: HostArray, v: HostArray, biases: Sequence[HostArray], scale: float) -> HostArray | None:
    """softmax(scale * q k^T + biases) v for float32.

    Args:
        q: (batch, heads, sequence, size).
        k: (batch, key heads, keys, size).
        v: (batch, key heads, keys, value size).
        biases: arrays that broadcast against the scores.
        scale: factor of the scores.

    Returns:
        (batch, heads, sequence, value size), a view of memory in the order (batch, sequence, heads, value size); None for arrays
        that do not fit together.
    """
    is_alike = q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape[:3] == v.shape[:3]
    if not is_alike or not k.shape[1] or q.shape[1] % k.shape[1]:
        return None
    batch, heads, length, size = q.shape
    key_heads, keys, value_size = k.shape[1], k.shape[2], v.shape[3]
    group = heads // key_heads
    q, k, v = (array if array.strides[3] == FLOAT.itemsize else np.ascontiguousarray(array) for array in (q, k, v))
    out = np.empty((batch, length, heads, value_size), FLOAT).transpose(0, 2, 1, 3)
    total = functools.reduce(np.add, biases) if biases else None
    mask = None if total is None else np.broadcast_to(total, (batch, heads, length, keys))
    # A single query of each head: heads that share keys are the queries of one block then, else each would have its own.
    own_heads, queries = (1, group) if length == 1 else (group, length)
    shape = AttentionShape(key_heads, own_heads, queries, keys, size, value_size, scale)
    workspace = shared_workspace()
    for sample in range(batch):
        operands = [_words(q[sample], group, length), _words(k[sample], 0, 0), _words(v[sample], 0, 0)]
        operands.append(_words(out[sample], group, length))
        _attend(shape, operands, NO_BIAS if mask is None else _mask_words(mask[sample], group), workspace)
    return out


def _words(array: HostArray, group: int, length: int) -> Words:
    """Words of ``HeadRows`` for (heads, rows, size); ``group`` heads share one of the keys, 0 for keys and values themselves."""
    head, row = array.strides[:2]
    if not group:
        return array, head, 0, row
    return array, head * group, head, head if length == 1 else row


def _mask_words(mask: HostArray, group: int) -> Words:
    """Words of ``ScoreBias`` for (heads, queries, keys)."""
    head, query, key = mask.strides
    return mask, head * group, head, head if mask.shape[1] == 1 else query, key


def _attend(shape: AttentionShape, operands: Sequence[Words], mask: Words, workspace: Workspace) -> None:
    threads = shape.threads(libraries.thread_count())
    buffer = (workspace.buffer("attention", threads * shape.thread_bytes), shape.thread_bytes)
    flash_task()(threads, FlashAttention.of(operands, shape.words, buffer, mask))
