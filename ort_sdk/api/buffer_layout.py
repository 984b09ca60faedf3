"""Laying out buffers by lifetime, so that those that never live together share memory: the host's arenas, devices' workspaces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .data_classes import dataclass

__all__ = ["BufferLifetime", "lay_out"]


@dataclass(frozen=True, slots=True)
class BufferLifetime:
    """One buffer: its size, and the first and last step that touch it (inclusive)."""

    nbytes: int
    first: int
    last: int


def lay_out(buffers: Sequence[BufferLifetime], alignment_bytes: int) -> tuple[list[int], int]:
    """Offsets for buffers, largest first, each at the lowest offset free for its whole life.

    Args:
        buffers: what is laid out.
        alignment_bytes: of which offsets are multiples.

    Returns:
        (offset in bytes of each buffer, bytes of all together).
    """
    offsets = [0] * len(buffers)
    placed = _Placed(len(buffers), alignment_bytes)
    total = 0
    for index in sorted(range(len(buffers)), key=lambda position: -buffers[position].nbytes):
        offsets[index] = placed.place(buffers[index])
        total = max(total, offsets[index] + _rounded(buffers[index].nbytes, alignment_bytes))
    return offsets, total


class _Placed:
    """Buffers laid out so far, by offset: rows of a table, so that looking through thousands of them costs little."""

    def __init__(self, capacity: int, alignment_bytes: int) -> None:
        self._alignment_bytes = alignment_bytes
        self._rows = np.empty((4, capacity), dtype=np.int64)
        """Start, end, first step, last step."""
        self._count = 0

    def place(self, buffer: BufferLifetime) -> int:
        """Put a buffer at the lowest offset that is free for its whole life."""
        starts, ends, firsts, lasts = self._rows[:, : self._count]
        is_neighbour = (firsts <= buffer.last) & (lasts >= buffer.first)
        taken_from, taken_to = starts[is_neighbour], ends[is_neighbour]
        free_from = np.maximum.accumulate(np.append(0, taken_to))
        fits = np.flatnonzero(free_from[:-1] + buffer.nbytes <= taken_from)
        offset = int(free_from[fits[0]] if fits.size else free_from[-1])
        position, count = int(np.searchsorted(starts, offset)), self._count
        self._rows[:, position + 1 : count + 1] = self._rows[:, position:count]
        self._rows[:, position] = (offset, offset + _rounded(buffer.nbytes, self._alignment_bytes), buffer.first, buffer.last)
        self._count += 1
        return offset


def _rounded(nbytes: int, alignment_bytes: int) -> int:
    return -(-nbytes // alignment_bytes) * alignment_bytes
