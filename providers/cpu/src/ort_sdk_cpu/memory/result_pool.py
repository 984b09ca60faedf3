"""Memory of large results in runs without programs, used again when the last array on it is gone.

A program has an arena. Without one, each run would take its memory from the system and give it back, page by page: for a text of
some hundred words that takes as long as a third of the computing.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from typing import Any

import numpy as np

from ort_sdk.api import LENT_MEMORY, HostArray
from ort_sdk_cpu.platform.addresses import address_of

from .strides import memory_order

__all__ = ["SMALLEST_BYTES", "RecycledMemory", "ResultMemory", "recycled_memory"]

SMALLEST_BYTES = 1 << 16
"""Of an array: smaller ones the system's allocator keeps by itself."""
LARGEST_BYTES = 1 << 28
MOST_KEPT_BYTES = 1 << 26
"""Of all memory that waits to be used again, if less than that is in use, and as much was in use at once before."""
KEPT_SHARE = 0.75
"""Of ``MOST_KEPT_BYTES``: what may wait if never more was in use at once."""
MOST_LARGER = 2
"""Times what is asked for: so much memory may be given where none of the size itself waits.

With texts of eight widths in turn, and three quarters of the memory waiting, half as many bytes come from the system as where
only the size itself serves.
"""
ALIGNMENT_BYTES = 64
FEW_RUNS = 4
"""Runs of a kernel whose results are not recycled: where shapes stay, a program does the rest, in memory of its own."""
_FLOAT = np.dtype(np.float32)


class RecycledMemory:
    """Makes float32 arrays. For any number of threads at once."""

    def __init__(self) -> None:
        # An array may end, and its memory come back, wherever Python runs code: also while this thread changes what is below.
        self._lock = threading.RLock()
        self._is_changing = False
        """While it is so, what comes back only goes to ``_returned``."""
        self._returned: deque[HostArray] = deque()
        """What came back, and is not in ``_waiting`` yet."""
        self._waiting: OrderedDict[int, list[HostArray]] = OrderedDict()
        """By length, that of the latest use last."""
        self._lengths: list[int] = []
        """The same lengths, ascending."""
        self._kept_bytes = self._used_bytes = self._most_used_bytes = 0

    def empty(self, shape: tuple[int, ...]) -> HostArray:
        """A row-major array with any contents."""
        nbytes = math.prod(shape) * _FLOAT.itemsize
        if not SMALLEST_BYTES <= nbytes <= LARGEST_BYTES:
            return np.empty(shape, _FLOAT)
        length = _length(nbytes)
        memory = self._take(length)
        block = _block_type(length).from_address(address_of(memory))
        block.memory, block.owner = memory, weakref.ref(self)
        # The array holds the block, as do all views of it: NumPy only looks behind bases that are arrays.
        return np.ndarray(shape, _FLOAT, block)

    def give_back(self, memory: HostArray) -> None:
        """Let memory that no array is on any more be used again, but keep no more than is in use, or ``_most_kept_bytes``.

        So what a loop hands from run to run, as a model's past keys and values, is there again in the run after the next.
        """
        self._returned.append(memory)
        with self._lock:
            if not self._is_changing:
                self._is_changing = True
                try:
                    self._keep_returned()
                finally:
                    self._is_changing = False

    def _keep_returned(self) -> None:
        while self._returned:
            memory = self._returned.popleft()
            length = memory.nbytes
            self._used_bytes -= length
            self._kept_bytes += length
            waiting = self._waiting.get(length)
            if waiting is None:
                waiting = self._waiting[length] = []
                insort(self._lengths, length)
            waiting.append(memory)
            self._waiting.move_to_end(length)
        while self._kept_bytes > self._used_bytes and self._kept_bytes > self._most_kept_bytes():
            self._pop(next(iter(self._waiting)))

    def _most_kept_bytes(self) -> float:
        return min(MOST_KEPT_BYTES, max(KEPT_SHARE * MOST_KEPT_BYTES, self._most_used_bytes))

    def _take(self, length: int) -> HostArray:
        found = None
        with self._lock:
            if not self._is_changing:  # else this is a finalizer's array
                self._is_changing = True
                try:
                    found = self._find(length)
                finally:
                    self._is_changing = False
            self._used_bytes += length if found is None else found.nbytes
            self._most_used_bytes = max(self._most_used_bytes, self._used_bytes)
        if found is not None:
            return found
        raw = np.empty(length + ALIGNMENT_BYTES, np.uint8)
        start = -address_of(raw) % ALIGNMENT_BYTES
        return raw[start : start + length]

    def _find(self, length: int) -> HostArray | None:
        """Waiting memory of a length, or of one that is not much more; None if there is none."""
        found = length if length in self._waiting else self._fitting(length)
        if not found:
            return None
        self._waiting.move_to_end(found)
        return self._pop(found)

    def _fitting(self, length: int) -> int:
        """The shortest length that waits and is enough, if it is not much more; otherwise 0."""
        position = bisect_left(self._lengths, length)
        found = self._lengths[position] if position < len(self._lengths) else 0
        return found if found <= MOST_LARGER * length else 0

    def _pop(self, length: int) -> HostArray:
        """Memory of a length, which does not wait any more."""
        waiting = self._waiting[length]
        self._kept_bytes -= length
        memory = waiting.pop()
        if not waiting:
            del self._waiting[length]
            del self._lengths[bisect_left(self._lengths, length)]
        return memory


def _length(nbytes: int) -> int:
    """Bytes, rounded up by at most a quarter, so that sequences of nearly the same length use the same memory."""
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


@functools.lru_cache(maxsize=256)
def _block_type(length: int) -> Any:
    """What holds memory of a length on behalf of arrays, and gives it back when it ends."""
    return type("Block", (ctypes.c_char * length,), {"__del__": _end, LENT_MEMORY: True})


def _end(block: Any) -> None:
    owner = block.owner()
    if owner is not None:
        owner.give_back(block.memory)


def recycled_memory() -> RecycledMemory:
    """The memory in use; a new one if nobody holds any: it is freed with the last session's kernels."""
    with _lock:
        return _in_use.setdefault("all sessions", RecycledMemory())


_lock = threading.Lock()
_in_use: weakref.WeakValueDictionary[str, RecycledMemory] = weakref.WeakValueDictionary()


class ResultMemory:
    """Makes the results of one kernel: recycled ones, if it runs without programs again and again."""

    __slots__ = ("_memory", "_runs")

    def __init__(self) -> None:
        self._memory: RecycledMemory | None = None
        self._runs = 0

    def empty(self, shape: tuple[int, ...]) -> HostArray:
        """A row-major float32 array with any contents."""
        self._runs += 1
        if self._runs <= FEW_RUNS:
            return np.empty(shape, _FLOAT)
        if self._memory is None:
            self._memory = recycled_memory()
        return self._memory.empty(shape)

    def like(self, x: HostArray) -> HostArray:
        """A float32 array of an array's shape, which lies as that does if that has no gaps."""
        if x.flags.c_contiguous:
            return self.empty(x.shape)
        order = memory_order(x)
        lying = x.transpose(order)
        return self.empty(lying.shape).transpose(np.argsort(order)) if lying.flags.c_contiguous else np.empty_like(x)
