"""Memory that is a part of a file being written: what is made there is in the file, and takes no private memory."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Sequence
from typing import IO

import numpy as np

from ort_sdk.api import HostArray, OrtMemoryInfo, TensorElementType

from .memory_map import map_file_for_writing

__all__ = ["FileMemory"]

ALIGNMENT_BYTES = 64
_CAN_RESERVE = hasattr(os, "posix_fallocate")
"""Without room reserved on the disk, writing to a map would end the process when the disk is full."""


class FileMemory:
    """An allocator of arrays in a file, one behind the other.

    Where the system cannot map files for writing, the disk is full, or the owner is gone, the arrays are plain memory.

    Args:
        reserve: method of the file's owner; ``reserve(nbytes)`` gives the file and where an object of so many bytes may start
            in it, which is the file's end. It is held weakly: the owner holds its memory.
    """

    goes_to_file = True
    """What ``OpKernel.prepack`` may look at."""

    def __init__(self, reserve: Callable[[int], tuple[IO[bytes], int]]) -> None:
        self.memory_info = OrtMemoryInfo()
        self._reserve = weakref.WeakMethod(reserve)
        self._parts: dict[tuple[int, int], tuple[HostArray, int]] = {}

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> HostArray:
        """A new array with undefined contents at a multiple of 64 bytes."""
        dtype = element_type.numpy_dtype
        nbytes = math.prod(shape) * dtype.itemsize
        content = self._part(nbytes) if nbytes and _CAN_RESERVE else _plain(nbytes)
        return content.view(dtype).reshape(tuple(shape))

    def release(self, array: HostArray) -> None:
        """Nothing to do: bytes of the file that no entry names do no harm."""

    def offset_of(self, array: HostArray) -> int | None:
        """Offset in the file of an array that was allocated here; None for any other."""
        found = self._parts.get(_key(array))
        return None if found is None else found[1]

    def forget(self) -> None:
        """Let go of the arrays; they are the file's from now on."""
        self._parts.clear()

    def _part(self, nbytes: int) -> HostArray:
        reserve = self._reserve()
        if reserve is None:
            return _plain(nbytes)
        try:
            file, offset = reserve(nbytes)
            file.flush()
            os.posix_fallocate(file.fileno(), offset, nbytes)
            content = map_file_for_writing(file.fileno(), nbytes, offset)
            file.seek(offset + nbytes)
        except OSError:
            return _plain(nbytes)
        # Kept, so that no other array gets its address.
        self._parts[_key(content)] = (content, offset)
        return content


def _key(array: HostArray) -> tuple[int, int]:
    return int(array.ctypes.data), int(array.nbytes)


def _plain(nbytes: int) -> HostArray:
    memory = np.empty(nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + nbytes]
