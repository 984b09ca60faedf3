"""Heaps of integers, 8 bytes each, with the smallest on top."""

from __future__ import annotations

from ort_sdk_cpu.jit.cache_folder import inner

from .memory import read_i64, write_i64

__all__ = ["rise", "sink"]


@inner
def sink(heap: int, count: int, hole: int, key: int) -> None:
    """Put a key in the place of one of ``count``, or below it, where no smaller one is below."""
    while True:
        below = 2 * hole + 1
        if below >= count:
            break
        found = read_i64(heap + below * 8)
        if below + 1 < count:
            other = read_i64(heap + below * 8 + 8)
            if other < found:
                below, found = below + 1, other
        if found >= key:
            break
        write_i64(heap + hole * 8, found)
        hole = below
    write_i64(heap + hole * 8, key)


@inner
def rise(heap: int, count: int, key: int) -> None:
    """Add a key behind ``count`` others."""
    hole = count
    while hole:
        above = (hole - 1) // 2
        found = read_i64(heap + above * 8)
        if found <= key:
            break
        write_i64(heap + hole * 8, found)
        hole = above
    write_i64(heap + hole * 8, key)
