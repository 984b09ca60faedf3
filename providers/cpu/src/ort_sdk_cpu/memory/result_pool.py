"""Pool of memory for large results of runs without programs: a block is reused when the last array on it is gone.

A program has an arena. Without one, each run would map and unmap its memory page by page, which for a text of some hundred words
takes a third as long as the computation.
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

__all__ = ["MIN_BYTES", "ResultAllocator", "ResultPool", "result_pool"]

MIN_BYTES = 1 << 16
"""Least bytes of an array that is pooled: the C library keeps smaller freed blocks by itself."""
MAX_BYTES = 1 << 28
"""Most bytes of an array that is pooled."""
MAX_IDLE_BYTES = 1 << 26
"""Most bytes of idle blocks while fewer bytes are in use, if as many were in use at once before."""
IDLE_FRACTION = 0.75
"""Fraction of ``MAX_IDLE_BYTES`` that may be idle if never more was in use at once."""
MAX_OVERSIZE = 2
"""An idle block may be this many times larger than the request where no block of the requested length is idle.

With texts of eight lengths in turn and three quarters of the memory idle, half as many bytes come from the system as with blocks
of the exact length only.
"""
ALIGNMENT_BYTES = 64
UNPOOLED_RUNS = 4
"""First runs of a kernel, whose results are not pooled: where shapes repeat, a program with its own arena soon runs it."""
_FLOAT = np.dtype(np.float32)


class ResultPool:
    """Allocates float32 arrays on pooled blocks. Thread-safe."""

    def __init__(self) -> None:
        # A finalizer may return a block wherever Python runs code, also while this thread changes the fields below.
        self._lock = threading.RLock()
        self._is_changing = False
        """Whether a thread changes the fields below: then blocks are put into ``_returned`` only."""
        self._returned: deque[HostArray] = deque()
        """Returned blocks that are not in ``_idle`` yet."""
        self._idle: OrderedDict[int, list[HostArray]] = OrderedDict()
        """Length → idle blocks; the least recently used length first."""
        self._lengths: list[int] = []
        """The lengths of ``_idle``, ascending."""
        self._idle_bytes = self._used_bytes = self._max_used_bytes = 0

    def empty(self, shape: tuple[int, ...]) -> HostArray:
        """An uninitialized row-major float32 array, at a multiple of 64 bytes if it is pooled."""
        nbytes = math.prod(shape) * _FLOAT.itemsize
        if not MIN_BYTES <= nbytes <= MAX_BYTES:
            return np.empty(shape, _FLOAT)
        length = _length(nbytes)
        memory = self._take(length)
        block = _block_type(length).from_address(address_of(memory))
        block.memory, block.owner = memory, weakref.ref(self)
        # The array and all views of it hold the block: NumPy collapses a chain of bases only where they are arrays.
        return np.ndarray(shape, _FLOAT, block)

    def give_back(self, memory: HostArray) -> None:
        """Return a block that no array uses any more; idle blocks above ``_max_idle_bytes`` and the bytes in use are freed.

        So the blocks of values that a loop passes from run to run, such as a KV cache, are reused in the run after the next.
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
            self._idle_bytes += length
            idle = self._idle.get(length)
            if idle is None:
                idle = self._idle[length] = []
                insort(self._lengths, length)
            idle.append(memory)
            self._idle.move_to_end(length)
        while self._idle_bytes > self._used_bytes and self._idle_bytes > self._max_idle_bytes():
            self._pop(next(iter(self._idle)))

    def _max_idle_bytes(self) -> float:
        return min(MAX_IDLE_BYTES, max(IDLE_FRACTION * MAX_IDLE_BYTES, self._max_used_bytes))

    def _take(self, length: int) -> HostArray:
        found = None
        with self._lock:
            if not self._is_changing:  # otherwise a finalizer allocates while this thread changes the pool
                self._is_changing = True
                try:
                    found = self._find(length)
                finally:
                    self._is_changing = False
            self._used_bytes += length if found is None else found.nbytes
            self._max_used_bytes = max(self._max_used_bytes, self._used_bytes)
        if found is not None:
            return found
        raw = np.empty(length + ALIGNMENT_BYTES, np.uint8)
        start = -address_of(raw) % ALIGNMENT_BYTES
        return raw[start : start + length]

    def _find(self, length: int) -> HostArray | None:
        """An idle block of a length, or of one at most ``MAX_OVERSIZE`` times longer; None if there is none."""
        found = length if length in self._idle else self._fitting(length)
        if not found:
            return None
        self._idle.move_to_end(found)
        return self._pop(found)

    def _fitting(self, length: int) -> int:
        """The shortest sufficient length of an idle block, if it is at most ``MAX_OVERSIZE`` times longer; otherwise 0."""
        position = bisect_left(self._lengths, length)
        found = self._lengths[position] if position < len(self._lengths) else 0
        return found if found <= MAX_OVERSIZE * length else 0

    def _pop(self, length: int) -> HostArray:
        """Take an idle block of a length out of the pool."""
        idle = self._idle[length]
        self._idle_bytes -= length
        memory = idle.pop()
        if not idle:
            del self._idle[length]
            del self._lengths[bisect_left(self._lengths, length)]
        return memory


def _length(nbytes: int) -> int:
    """Bytes rounded up by at most a quarter, so that sequences of nearly the same length use the same blocks."""
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


@functools.lru_cache(maxsize=256)
def _block_type(length: int) -> Any:
    """The type of the base objects of arrays on a block of a length; its finalizer returns the block to the pool."""
    return type("Block", (ctypes.c_char * length,), {"__del__": _end, LENT_MEMORY: True})


def _end(block: Any) -> None:
    owner = block.owner()
    if owner is not None:
        owner.give_back(block.memory)


def result_pool() -> ResultPool:
    """The pool of this process; created when nobody holds one, and freed with the last session's kernels."""
    with _lock:
        return _in_use.setdefault("all sessions", ResultPool())


_lock = threading.Lock()
_in_use: weakref.WeakValueDictionary[str, ResultPool] = weakref.WeakValueDictionary()


class ResultAllocator:
    """Allocates the results of one kernel, on pooled blocks once it has run without programs ``UNPOOLED_RUNS`` times."""

    __slots__ = ("_pool", "_runs")

    def __init__(self) -> None:
        self._pool: ResultPool | None = None
        self._runs = 0

    def empty(self, shape: tuple[int, ...]) -> HostArray:
        """An uninitialized row-major float32 array."""
        self._runs += 1
        if self._runs <= UNPOOLED_RUNS:
            return np.empty(shape, _FLOAT)
        if self._pool is None:
            self._pool = result_pool()
        return self._pool.empty(shape)

    def like(self, x: HostArray) -> HostArray:
        """An uninitialized float32 array of an array's shape, with the same memory order if that array is dense."""
        if x.flags.c_contiguous:
            return self.empty(x.shape)
        order = memory_order(x)
        ordered = x.transpose(order)
        return self.empty(ordered.shape).transpose(np.argsort(order)) if ordered.flags.c_contiguous else np.empty_like(x)
