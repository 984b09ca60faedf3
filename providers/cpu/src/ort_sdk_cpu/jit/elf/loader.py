"""Maps images from files: read-only pages are shared by all processes that map the file.

A file is a header, the image, and one line of text for each of the image's pointers. The header is a digest over the file's
name and all that follows, a format identifier, and the image's offsets.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from ort_sdk_cpu.jit.cache_files import open_cached
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.digests import DIGEST_BYTES, digest

from .image import Image, LinkError

__all__ = ["HEADER_BYTES", "can_map", "file_content", "map_content", "map_file", "map_part"]

_FORMAT = b"image-1\0"
_HEADER = struct.Struct("<8sIII")
"""Format identifier, and offsets of the function, of the first writable page, of the image's end."""
HEADER_BYTES = 64
"""Bytes before the image: a cache line, so that code is aligned to cache lines as in the object file."""
_FAILED = ctypes.c_void_p(-1).value


def file_content(image: Image, name: str) -> bytes:
    """Content of an image's file.

    Args:
        image: the image.
        name: of the file.
    """
    header = _HEADER.pack(_FORMAT, image.entry, image.writable, HEADER_BYTES + len(image.content))
    pointers = "".join(f"{pointer.offset} {pointer.addend} {pointer.symbol}\n" for pointer in image.pointers)
    content = header.ljust(HEADER_BYTES - DIGEST_BYTES, b"\0") + image.content + pointers.encode()
    return digest(name.encode(), content) + content


def can_map() -> bool:
    """Whether the system allows executable memory that was written to."""
    try:
        base = _map(mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        _protect(base, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)
    except OSError:
        return False
    _functions().munmap(base, mmap.PAGESIZE)
    return True


def map_file(folder: Path, name: str) -> int | None:
    """Map an image's file; returns the address of its function, None if the file is missing, not trusted or damaged.

    Args:
        folder: of the file.
        name: of the file.

    Raises:
        OSError: the system does not allow executable memory.
        LinkError: no library has a function that the image calls.
    """
    file = open_cached(folder, name)
    if file is None:
        return None
    try:
        return map_part(file, 0, os.fstat(file).st_size, name)
    finally:
        os.close(file)


def map_part(file: int, offset: int, size: int, name: str) -> int | None:
    """Map an image that is a part of a file; errors as for :func:`map_file`.

    Where the file system does not allow executable mappings, the content is copied to anonymous memory.

    Args:
        file: its descriptor.
        offset: of the image's own header in the file: a multiple of the page size.
        size: bytes of the image's file.
        name: of the image's file.

    Returns:
        The address of its function, None if it is damaged.
    """
    if size <= HEADER_BYTES:
        return None
    try:
        base = _map(size, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, offset)
    except PermissionError:
        return map_content(os.pread(file, size, offset), name)
    return _loaded(base, size, name)


def map_content(content: bytes, name: str) -> int | None:
    """Copy a file's content to executable memory; arguments, result and errors as for :func:`map_file`."""
    base = _map(len(content), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    ctypes.memmove(base, content, len(content))
    _protect(base, len(content), mmap.PROT_READ | mmap.PROT_EXEC)
    return _loaded(base, len(content), name)


def _loaded(base: int, size: int, name: str) -> int | None:
    """Check a mapping and set its pointers; unmaps a damaged one and returns None."""
    content = memoryview((ctypes.c_char * size).from_address(base)).cast("B")
    found, entry, writable, end = _HEADER.unpack_from(content, DIGEST_BYTES)
    if found != _FORMAT or digest(name.encode(), content[DIGEST_BYTES:]) != bytes(content[:DIGEST_BYTES]):
        content.release()
        _functions().munmap(base, size)
        return None
    pointers = bytes(content[end:]).decode()
    if pointers:
        _protect(base + writable, size - writable, mmap.PROT_READ | mmap.PROT_WRITE)
        _set_pointers(base, pointers)
    return base + int(entry)


def _set_pointers(base: int, pointers: str) -> None:
    for line in pointers.splitlines():
        offset, addend, symbol = line.split(" ")
        origin = _symbol_address(symbol) if symbol else base
        ctypes.c_uint64.from_address(base + int(offset)).value = origin + int(addend)


@functools.cache
def _symbol_address(symbol: str) -> int:
    """Address of a function of the C library or of OpenMP."""
    files = [None, libraries.OPENMP_FILE] if libraries.has_openmp() else [None]
    for file in files:
        function = getattr(ctypes.CDLL(file), symbol, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise LinkError(f"compiled code calls {symbol!r}, which none of this process's libraries has")


class _Functions:
    """The C library's functions for mappings."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self.mmap: Callable[..., int] = library.mmap
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.munmap, self.mprotect = library.munmap, library.mprotect
        self.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


_functions = functools.cache(_Functions)


def _map(size: int, protection: int, flags: int, file: int, offset: int = 0) -> int:
    base = _functions().mmap(None, size, protection, flags, file, offset)
    if base == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mapping {size} bytes of compiled code failed: {os.strerror(number)}")
    return base


def _protect(base: int, size: int, protection: int) -> None:
    if _functions().mprotect(base, size, protection):
        number = ctypes.get_errno()
        raise OSError(number, f"setting the protection of {size} bytes of compiled code failed: {os.strerror(number)}")
