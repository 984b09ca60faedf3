"""Memory that was freed, and that the C library keeps for what may be asked for next."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable

__all__ = ["give_back_freed_memory", "give_back_periodically"]

MIN_BYTES = 1 << 20
"""Freed memory from which on giving it back is worth a look through all of it."""
SECONDS_PER_SECOND = 50
"""Of other work, for each that giving back now and then takes: no more than a fiftieth of the time."""
LEAST_PAUSE_SECONDS = 0.5
"""Between two times now and then: what was given back comes from the system again, page by page, in the next run. Without a pause
a small network over images of any size took 8 % longer."""
_NUMBERS, _FREED = 10, 8
"""Of ``struct mallinfo2``, and which of them the bytes in free blocks are."""


def give_back_freed_memory() -> None:
    """Give the system what is free in the heap, if that is much and the C library can (glibc 2.33 and later).

    It takes some milliseconds for tens of megabytes, and what is allocated next comes from the system again: this is for when
    much work was done that is not done again.
    """
    functions = _functions()
    if functions is not None:
        freed_bytes, trim = functions
        if freed_bytes() >= MIN_BYTES:
            trim(0)


class _Schedule:
    next_look = 0.0
    """Time of the clock before which nothing is given back now and then, whatever thread asks."""


def give_back_periodically() -> None:
    """The same after a run that allocated each value anew, as long as it takes a small part of the run time."""
    start = time.monotonic()
    if start < _Schedule.next_look:
        return
    give_back_freed_memory()
    end = time.monotonic()
    _Schedule.next_look = end + max(LEAST_PAUSE_SECONDS, SECONDS_PER_SECOND * (end - start))


@functools.cache
def _functions() -> tuple[Callable[[], int], Callable[[int], int]] | None:
    """What measures how much is free, and what gives it back; None where one is missing."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    library = ctypes.CDLL(None)
    measure, trim = getattr(library, "mallinfo2", None), getattr(library, "malloc_trim", None)
    if measure is None or trim is None:
        return None

    class Numbers(ctypes.Structure):
        _fields_ = (("all", ctypes.c_size_t * _NUMBERS),)

    measure.restype = Numbers
    return lambda: int(measure().all[_FREED]), trim
