"""Maps of files that do not keep a file descriptor open.

Models exported with one file per weight have hundreds of external files, and the usual limit is 1024 descriptors. Before Python
3.13 a ``mmap.mmap`` keeps a duplicate of its descriptor, so POSIX's own function is called instead.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["drop_pages", "map_file", "map_file_for_writing"]


def map_file(descriptor: int, size: int, offset: int = 0) -> HostArray:
    """Map a file, or a part of it.

    Args:
        descriptor: open for reading; may be closed afterwards.
        size: bytes to map.
        offset: first byte.

    Returns:
        A read-only ``uint8`` vector; the map lives as long as it or a view of it.

    Raises:
        OSError: the system refuses.
    """
    return _mapped(descriptor, size, offset, writable=False)


def map_file_for_writing(descriptor: int, size: int, offset: int = 0) -> HostArray:
    """The same, open for reading and writing: what is written into the vector is written into the file, which has these bytes.

    Raises:
        OSError: the system refuses.
    """
    return _mapped(descriptor, size, offset, writable=True)


def drop_pages(part: HostArray) -> None:
    """Give back the memory of whole pages in a part of a mapped file: the system reads the file again if they are asked for.

    Args:
        part: bytes of an array that ``map_file`` has made.
    """
    if os.name != "posix" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    address = part.ctypes.data
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (address + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
    # Advice that the system does not take changes nothing.
    if size > 0:
        _c_library().madvise(start, size, mmap.MADV_DONTNEED)


def _mapped(descriptor: int, size: int, offset: int, *, writable: bool) -> HostArray:
    if size == 0:
        return np.empty(0, dtype=np.uint8)
    lead = offset % mmap.ALLOCATIONGRANULARITY
    return np.frombuffer(_map(descriptor, lead + size, offset - lead, writable=writable), dtype=np.uint8)[lead:]


def _map(descriptor: int, size: int, offset: int, *, writable: bool) -> Any:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    if os.name != "posix":
        return mmap.mmap(descriptor, size, access=access, offset=offset)
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=access, offset=offset, trackfd=False)
    return _posix_map(descriptor, size, offset, writable=writable)


def _posix_map(descriptor: int, size: int, offset: int, *, writable: bool) -> memoryview:
    library = _c_library()
    protection = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    address = library.mmap(None, size, protection, mmap.MAP_SHARED, descriptor, offset)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    content = _Memory(address, size, writable=writable)
    # Not at exit: other threads may still read then, and the system unmaps anyway.
    weakref.finalize(content, library.munmap, address, size).atexit = False
    return np.asarray(content).data


class _Memory:
    """Some memory as NumPy takes it. A type of ``ctypes``, one for each size, would be left to the garbage collector."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, size: int, *, writable: bool) -> None:
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, not writable)}


@functools.cache
def _c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library
