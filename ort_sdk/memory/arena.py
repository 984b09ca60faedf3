"""Laying out buffers by lifetime, so that those that never live together share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_sdk.api import HostArray, TensorElementType

__all__ = ["ARENA_ALIGNMENT_BYTES", "Arena", "BufferLifetime", "lay_out"]

ARENA_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class BufferLifetime:
    """One buffer: its size, and the first and last step that touch it (inclusive)."""

    nbytes: int
    first: int
    last: int


def lay_out(buffers: Sequence[BufferLifetime]) -> tuple[list[int], int]:
    """Offsets for buffers, largest first, each at the lowest offset free for its whole life.

    Returns:
        (offset in bytes of each buffer, bytes of the whole arena).
    """
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(buffers)), key=lambda position: -buffers[position].nbytes):
        buffer = buffers[index]
        neighbours = sorted(
            (offsets[other], offsets[other] + _rounded(buffers[other].nbytes))
            for other in placed
            if buffers[other].first <= buffer.last and buffer.first <= buffers[other].last
        )
        offset = 0
        for start, end in neighbours:
            if offset + buffer.nbytes <= start:
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + _rounded(buffer.nbytes))
    return offsets, total


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ARENA_ALIGNMENT_BYTES) * ARENA_ALIGNMENT_BYTES


class Arena:
    """Host memory that the programs of a session share, one at a time. Grows to the largest that asked."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, dtype=np.uint8)

    def reserve(self, nbytes: int) -> HostArray:
        """A buffer of at least ``nbytes`` bytes, aligned; earlier ones stay valid for whoever holds them."""
        if self._buffer.nbytes < nbytes:
            raw = np.empty(nbytes + ARENA_ALIGNMENT_BYTES, dtype=np.uint8)
            start = -raw.ctypes.data % ARENA_ALIGNMENT_BYTES
            self._buffer = raw[start : start + nbytes]
        return self._buffer

    @staticmethod
    def view(buffer: HostArray, offset: int, shape: tuple[int, ...], element_type: TensorElementType) -> HostArray:
        """A part of the arena as an array."""
        dtype = element_type.numpy_dtype
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return buffer[offset : offset + nbytes].view(dtype).reshape(shape)
