"""Where weight bytes are: a file under one shared memory map, or a caller's buffer."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Hashable
from typing import Any

import numpy as np

from ort_sdk.api import Fail, HostArray

from .checksum import checksum
from .memory_map import drop_pages, map_file

__all__ = ["ByteSource", "give_back_pages", "map_descriptor", "wrap_buffer"]


class ByteSource:
    """Bytes that tensors are ranges of. A range references its source, which is freed with the last range.

    Args:
        array: all bytes, a read-only ``uint8`` vector that keeps its memory alive.
        identity: equal for equal bytes as long as the source lives: the file's state, or the buffer's address.
        is_writable: whether the owner of the bytes may change them.
    """

    __slots__ = ("__weakref__", "_checksums", "_copies", "_lock", "_read_bytes", "array", "identity", "is_writable")

    def __init__(self, array: HostArray, identity: Hashable, *, is_writable: bool = False) -> None:
        self.array = array
        self.identity = identity
        self.is_writable = is_writable
        self._checksums: dict[tuple[int, int], int] = {}
        self._copies: weakref.WeakValueDictionary[tuple[int, int], HostArray] | None = None
        self._lock = threading.Lock()
        self._read_bytes = 0

    def __len__(self) -> int:
        return len(self.array)

    @property
    def is_file(self) -> bool:
        """Whether the identity is a file's state, which means the same in other processes."""
        return isinstance(self.identity, tuple) and self.identity[0] == "file"

    def range(self, offset: int, length: int) -> HostArray:
        """View of a range."""
        return self.array[offset : offset + length]

    def aligned(self, offset: int, length: int, alignment: int) -> HostArray:
        """A range at an address that is a multiple of ``alignment``: the view if it is, else a copy that all users share."""
        view = self.range(offset, length)
        return view if view.ctypes.data % alignment == 0 else self.copy(offset, length)

    def copy(self, offset: int, length: int) -> HostArray:
        """A copy of a range that all users share."""
        with self._lock:
            if self._copies is None:
                self._copies = weakref.WeakValueDictionary()
            copy = self._copies.get((offset, length))
            if copy is None:
                copy = self.range(offset, length).copy()
                copy.flags.writeable = False
                self._copies[offset, length] = copy
            return copy

    def drop_pages_later(self, nbytes: int = 0) -> None:
        """Have the next ``give_back_pages`` drop a file's pages: most of them will not be read again, and others are read anew.

        Memory that is no file's stays.

        Args:
            nbytes: how much was read of the file since the last call; once that is much in all, its pages are dropped now.
        """
        if not self.is_file:
            return
        with _lock:
            _read.add(self)
            self._read_bytes += nbytes
            if self._read_bytes >= MOST_READ_BYTES:
                self._read_bytes = 0
                drop_pages(self.array)

    def checksum(self, offset: int, length: int) -> int:
        """Checksum of a range, computed once as long as the source lives and nobody may write into it."""
        known = None if self.is_writable else self._checksums.get((offset, length))
        if known is None:
            known = self._checksums[offset, length] = checksum(self.range(offset, length))
        return known


MOST_READ_BYTES = 1 << 26
"""Bytes of a file that are read before its pages are dropped: more make sessions of large models, which pack weight after weight,
hold a model's file and all that was packed at once; fewer make the system bring pages in again that it read ahead."""

_lock = threading.Lock()
_sources: weakref.WeakValueDictionary[Hashable, ByteSource] = weakref.WeakValueDictionary()
_read: weakref.WeakSet[ByteSource] = weakref.WeakSet()


def give_back_pages() -> None:
    """Give back the memory of files whose pages were to be dropped (``drop_pages_later``).

    It is deferred, since each read of a file brings megabytes around what is read into memory.
    """
    with _lock:
        for source in _read:
            drop_pages(source.array)
        _read.clear()


def map_descriptor(descriptor: int, what: str) -> ByteSource:
    """The process's one read-only map of an open file, made if there is none.

    A file counts as the same while device, inode, size, and times of modification and status change are. It must be replaced
    by rename, never rewritten in place, while it is mapped.

    Args:
        descriptor: open for reading; stays open and the caller's.
        what: the file as messages name it.

    Raises:
        Fail: not a regular file, or it cannot be mapped.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Fail(f"{what} is {_kind(status.st_mode)}; only regular files can be loaded")
    identity = ("file", status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    with _lock:
        source = _sources.get(identity)
        if source is None:
            source = ByteSource(_map(descriptor, status.st_size, what), identity)
            _sources[identity] = source
        return source


def wrap_buffer(buffer: Any) -> ByteSource:
    """A source over a caller's contiguous buffer, which is kept and not copied. The same memory gives the same source.

    Raises:
        TypeError: not a contiguous buffer.
    """
    view = memoryview(buffer)
    is_writable = not view.readonly
    # A view of a read-only view cannot be made writable again.
    array = np.frombuffer(view.toreadonly(), dtype=np.uint8)
    identity = ("buffer", array.ctypes.data, len(array), is_writable)
    with _lock:
        source = _sources.get(identity)
        if source is None:
            source = ByteSource(array, identity, is_writable=is_writable)
            _sources[identity] = source
        return source


def _map(descriptor: int, size: int, what: str) -> HostArray:
    try:
        return map_file(descriptor, size)
    except (OSError, ValueError) as error:
        raise Fail(f"cannot map {what} ({size} bytes) into memory: {error}") from error


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return next((text for test, text in kinds if test(mode)), "a device")
