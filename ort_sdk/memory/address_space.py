"""Address space that takes memory only where it is touched, page by page."""

from __future__ import annotations

import mmap

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["MAY_RESERVE", "reserved"]

MAY_RESERVE = hasattr(mmap, "PROT_READ")
"""Whether address space can be had apart from memory; elsewhere the system counts all of it as used."""
HUGE_PAGES_BYTES = 1 << 22
"""From which on huge pages are asked for, as NumPy does for its arrays: fewer faults, and fewer misses of the address cache."""


def reserved(nbytes: int, *, writable: bool) -> HostArray | None:
    """Bytes of address space, zero where they are read before they are written to; None if there is no more.

    Args:
        nbytes: how many, at least 1.
        writable: whether they will be written to.
    """
    try:
        pages = _mapped(nbytes, writable=writable)
    except OSError:
        return None
    return np.frombuffer(pages, np.uint8)


def _mapped(nbytes: int, *, writable: bool) -> mmap.mmap:
    if not MAY_RESERVE:
        return mmap.mmap(-1, nbytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    pages = mmap.mmap(-1, nbytes, flags=flags, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    if writable and nbytes >= HUGE_PAGES_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # A kernel without huge pages.
            return pages
    return pages
