"""Host memory that the programs of a session share."""

from __future__ import annotations

import weakref

import numpy as np

from ort_sdk.api import HostArray, TensorElementType

from .address_space import MAY_RESERVE, reserved

__all__ = ["ARENA_ALIGNMENT_BYTES", "Arena"]

ARENA_ALIGNMENT_BYTES = 64
SMALLEST_THAT_GROWS_BYTES = 1 << 18
GROWTH = 8
"""How much larger than the program that needs a new buffer later ones may be and be in it, too."""


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
