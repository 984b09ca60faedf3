"""Operands of attention's tasks, which are read in place by their strides: parts of the tasks' argument lists.

Arrays (batch, heads, rows, size) and (batch, rows, heads * size) are both described by a base and three strides, so that no task
transposes heads. The elements of a row always follow each other.
"""

from __future__ import annotations

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.arguments import NullablePointer, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extent, Extents, accesses, reads, reads_if_given
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

__all__ = [
    "ABSENT",
    "CACHE_POSITIONS",
    "NO_BIAS",
    "CacheRows",
    "HeadRows",
    "RotaryTables",
    "ScoreBias",
    "Tokens",
    "strided_heads",
]

ABSENT = (None, 0, 0, 0)
"""Words of ``HeadRows`` that are not there."""
NO_BIAS = (None, 0, 0, 0, 0)
"""Words of ``ScoreBias`` where nothing is added to the scores."""
CACHE_POSITIONS = 3
"""Numbers of each sequence in ``Tokens.cache_positions``."""


class HeadRows(TaskArguments):
    """An operand (batch, heads, rows, size): queries, keys, values or the result."""

    base: Pointer
    """float32, or float16 where a task says so."""
    batch_stride: int
    """Bytes, as the next two."""
    head_stride: int
    row_stride: int

    def extent(self, batch: int, heads: int, rows: int, size: int, itemsize: int = FLOAT, *, is_written: bool = False) -> Extent:
        """All rows of these sizes are touched."""
        strides = (self.batch_stride, self.head_stride, self.row_stride, itemsize)
        return accesses(self.base, (batch, heads, rows, size), strides, itemsize, is_written=is_written)


class CacheRows(TaskArguments):
    """Keys or values of the past, (batch, key heads, rows, size), whose rows follow each other without gaps."""

    base: Pointer
    batch_stride: int
    """Bytes, as the next."""
    head_stride: int

    def extent(self, batch: int, heads: int, head_bytes: int) -> Extent:
        """All rows are read."""
        return accesses(self.base, (batch, heads), (self.batch_stride, self.head_stride), head_bytes)


class ScoreBias(TaskArguments):
    """float32 (batch, heads, queries, keys) added to the scores: an additive mask; strides are 0 along broadcast axes."""

    base: Pointer
    """0 for none."""
    batch_stride: int
    """Bytes, as the next three."""
    head_stride: int
    query_stride: int
    key_stride: int

    def extent(self, batch: int, heads: int, queries: int, keys: int) -> Extent:
        """All of it is read, if there is one."""
        strides = (self.batch_stride, self.head_stride, self.query_stride, self.key_stride)
        return accesses(self.base, (batch, heads, queries, keys), strides, FLOAT, may_be_none=True)


class RotaryTables(TaskArguments):
    """Cosines and sines by which rows are rotated (RoFormer, Su et al. 2021)."""

    cos: Pointer
    """float32 (rows, pairs)."""
    sin: Pointer
    row_stride: int
    """Bytes from row to row of both."""
    pairs: int
    """Pairs of elements that are rotated; a head's other elements stay. 0: nothing is rotated."""
    is_interleaved: int
    """1: pairs are neighbours (GPT-J); 0: an element of the first half and one of the second (GPT-NeoX)."""
    token_rows: Pointer
    """int64 (batch, tokens): each token's row; 0: the row is the token's position."""
    rows: int
    """Tokens whose row would be after the last one take the last."""

    def extents(self, tokens: int) -> Extents:
        """The tables, and the rows of so many tokens, are read."""
        if self.pairs > 0:
            nbytes = (self.rows - 1) * self.row_stride + self.pairs * FLOAT
            yield reads(self.cos, nbytes)
            yield reads(self.sin, nbytes)
            yield reads_if_given(self.token_rows, tokens * INT64)


class Tokens(TaskArguments):
    """What tasks that rotate rows know of tokens: the beginning of their argument lists."""

    rotary: RotaryTables
    cache_positions: NullablePointer
    """int64 (batch, 3): row of the cache for the first new key, position of the first query, and number of keys."""
    batch: int
    tokens: int
    """Queries of a sequence."""


def strided_heads(array: HostArray, heads: int) -> tuple[HostArray, int, int, int]:
    """Words of ``HeadRows`` for (batch, heads, rows, size), or (batch, rows, heads * size)."""
    strides = array.strides
    if array.ndim == 4:
        return array, strides[0], strides[1], strides[2]
    return array, strides[0], array.shape[2] // heads * array.itemsize, strides[1]
