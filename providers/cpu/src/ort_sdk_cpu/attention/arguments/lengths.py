"""Arguments of tasks that turn lengths and masks, which only a run knows, into what attention takes. All are of one thread."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, reads, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT, INT64

from .operands import CACHE_POSITIONS

__all__ = ["MODULE", "CachePositions", "CachePositionsFrom", "IndexCheck", "KeyCountBias", "LengthCheck", "MaskBias"]

MODULE = "attention.lengths"
_INT32 = 4


class CachePositions(TaskArguments, module=MODULE, tasks=("cache_positions",)):
    """``Tokens.cache_positions`` of GroupQueryAttention's sequences."""

    failed: int
    """0; the task sets 1 where lengths contradict each other."""
    last_positions: Pointer
    """int32 (batch), ONNX's ``seqlens_k``: each sequence's tokens less one."""
    batch: int
    new_tokens: int
    """Of each sequence."""
    longest: int
    """Tokens of the longest sequence, ONNX's ``total_sequence_length``."""
    past_rows: int
    is_causal: int
    """1: queries see no keys after them, so that keys after a sequence's end need no limit."""
    cache_positions: Pointer
    """int64 (batch, 3)."""

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.last_positions, self.batch * _INT32)
        yield writes(self.cache_positions, self.batch * CACHE_POSITIONS * INT64)


class CachePositionsFrom(TaskArguments, module=MODULE, tasks=("cache_positions_from",)):
    """``Tokens.cache_positions`` of sequences whose first tokens have the same position; of those the position alone."""

    failed: int
    """0; the task sets 1 where a token would have no row."""
    position: Pointer
    """int64 (1)."""
    batch: int
    tokens: int
    """Of each sequence."""
    rows: int
    """Of the tables that are looked up."""
    cache_positions: Pointer
    """int64 (batch, 3)."""

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.position, INT64), writes(self.cache_positions, self.batch * CACHE_POSITIONS * INT64)


class IndexCheck(TaskArguments, module=MODULE, tasks=("check_indices",)):
    """Whether indices are rows of a table."""

    failed: int
    """0; the task sets 1 where one is not."""
    indices: Pointer
    """int64 (count)."""
    count: int
    rows: int

    def extents(self) -> Extents:
        """What is read."""
        return (reads(self.indices, self.count * INT64),)


class LengthCheck(TaskArguments, module=MODULE, tasks=("check_lengths",)):
    """Whether lengths are such of sequences."""

    failed: int
    """0; the task sets 1 where one is not."""
    lengths: Pointer
    """int32 (count)."""
    count: int
    most: int

    def extents(self) -> Extents:
        """What is read."""
        return (reads(self.lengths, self.count * _INT32),)


class MaskBias(TaskArguments, module=MODULE, tasks=("mask_bias",)):
    """The score bias of a mask."""

    mask: Pointer
    """int32 (count), above 0 where keys are seen."""
    count: int
    out: Pointer
    """float32 (count)."""
    hidden: float
    """What is added where they are not."""

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.mask, self.count * _INT32), writes(self.out, self.count * FLOAT)


class KeyCountBias(TaskArguments, module=MODULE, tasks=("key_count_bias",)):
    """The score bias of sequences with so many keys each."""

    counts: Pointer
    """int32 (batch): each sequence's keys."""
    batch: int
    keys: int
    out: Pointer
    """float32 (batch, keys)."""
    hidden: float
    """What is added after a sequence's keys."""

    def extents(self) -> Extents:
        """What is read and written."""
        return reads(self.counts, self.batch * _INT32), writes(self.out, self.batch * self.keys * FLOAT)
