"""Laying out buffers by lifetime, so that those that never live together share memory."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray, TensorElementType
from ort_sdk.api.data_classes import dataclass

from .address_space import MAY_RESERVE, reserved

__all__ = ["ARENA_ALIGNMENT_BYTES", "Arena", "BufferLifetime", "lay_out"]

ARENA_ALIGNMENT_BYTES = 64
SMALLEST_THAT_GROWS_BYTES = 1 << 18
GROWTH = 8
"""How much larger than the program that needs a new buffer later ones may be and be in it, too."""


@dataclass(frozen=True, slots=True)
class BufferLifetime:
    """One buffer: its size, and the first and last step that touch it (inclusive)."""

    nbytes: int
    first: int
    last: int


def lay_out(buffers: Sequence[BufferLifetime], alignment_bytes: int = ARENA_ALIGNMENT_BYTES) -> tuple[list[int], int]:
    """Offsets for buffers, largest first, each at the lowest offset free for its whole life.

    Args:
        buffers: what is laid out.
        alignment_bytes: of which offsets are multiples.

    Returns:
        (offset in bytes of each buffer, bytes of the whole arena).
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


class Arena:
    """Host memory that the programs of a session share, one at a time. Grows to the largest that asked."""

    def __init__(self) -> None:
        self._buffer: HostArray = np.empty(0, dtype=np.uint8)
        self._used_bytes = 0
        """The most that one program asked for of the buffer: the rest is never touched."""
        self._earlier: list[tuple[weakref.ref[HostArray], int]] = []
        """What buffers before this one are in, and how much of it was used."""

    @property
    def nbytes(self) -> int:
        """Bytes that programs may have touched."""
        self._earlier = [(memory, used) for memory, used in self._earlier if memory() is not None]
        return self._used_bytes + sum(used for _, used in self._earlier)

    def reserve(self, nbytes: int) -> HostArray:
        """A buffer of at least ``nbytes`` bytes, aligned; earlier ones stay valid as long as they are referenced.

        A larger one is most often more of the same memory: address space for it was set aside.
        """
        if self._buffer.nbytes < nbytes:
            if self._used_bytes:
                self._earlier.append((weakref.ref(_owner(self._buffer)), self._used_bytes))
            self._buffer, self._used_bytes = _new_buffer(nbytes), 0
        self._used_bytes = max(self._used_bytes, nbytes)
        return self._buffer

    @staticmethod
    def view(buffer: HostArray, offset: int, shape: tuple[int, ...], element_type: TensorElementType) -> HostArray:
        """A part of the arena as an array."""
        dtype = element_type.numpy_dtype
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return buffer[offset : offset + nbytes].view(dtype).reshape(shape)


def _new_buffer(nbytes: int) -> HostArray:
    """An aligned buffer; a large one has room to grow, which takes no memory before it is touched."""
    found = reserved(nbytes * GROWTH, writable=True) if MAY_RESERVE and nbytes >= SMALLEST_THAT_GROWS_BYTES else None
    if found is not None:
        return found
    raw = np.empty(nbytes + ARENA_ALIGNMENT_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ARENA_ALIGNMENT_BYTES
    return raw[start : start + nbytes]


def _owner(buffer: HostArray) -> HostArray:
    """The array that all views of a buffer keep alive."""
    return buffer.base if isinstance(buffer.base, np.ndarray) else buffer
