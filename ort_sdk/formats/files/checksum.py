"""The checksum of weights in files: sums of their words by rows and by columns, which take little longer than to read them."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["CHECKSUM_NAME", "RunningChecksum", "checksum"]

CHECKSUM_NAME = "sums32"
"""Word before a checksum's digits in files."""
_PART_BYTES = 4 << 20
_ROW_WORDS = 4096
_ROWS_AT_ONCE = 16
"""Rows that are summed in both ways while they are in a core's cache."""
_WORD = np.dtype("<u8")
_MAX_THREADS = 4


def checksum(data: HostArray) -> int:
    """A number of 32 bits that changes with the bytes.

    Of each part of 4 MiB, seen as rows of 4096 words of 64 bits, it is the CRC-32 of the sums of columns, then of rows, then of
    the bytes behind the last whole row; of several parts, the CRC-32 of their checksums (all little endian). Any change of one
    word is found, and so is a row or a page that is missing or moved. It is no defence against somebody who may write
    the file.

    Args:
        data: a contiguous ``uint8`` vector.
    """
    if len(data) <= _PART_BYTES:
        return _of_part(data)
    return _of_parts(_in_threads([data[start : start + _PART_BYTES] for start in range(0, len(data), _PART_BYTES)]))


def _of_part(data: HostArray) -> int:
    rows = len(data) // (_ROW_WORDS * _WORD.itemsize)
    rest = data[rows * _ROW_WORDS * _WORD.itemsize :].data
    if not rows:
        return zlib.crc32(rest)
    words = data[: rows * _ROW_WORDS * _WORD.itemsize].view(_WORD).reshape(rows, _ROW_WORDS)
    by_column, by_row = np.zeros(_ROW_WORDS, _WORD), np.empty(rows, _WORD)
    for start in range(0, rows, _ROWS_AT_ONCE):
        some = words[start : start + _ROWS_AT_ONCE]
        by_column += np.add.reduce(some, axis=0)
        np.add.reduce(some, axis=1, out=by_row[start : start + _ROWS_AT_ONCE])
    return zlib.crc32(rest, zlib.crc32(by_row.data, zlib.crc32(by_column.data)))


def _of_parts(values: Sequence[int]) -> int:
    return zlib.crc32(np.array(values, "<u4").tobytes())


def _in_threads(parts: Sequence[HostArray]) -> list[int]:
    """Checksums of parts. NumPy lets other threads run meanwhile."""
    values = [0] * len(parts)
    left = iter(range(len(parts)))

    def work() -> None:
        for index in left:
            values[index] = _of_part(parts[index])

    threads = [threading.Thread(target=work) for _ in range(min(_MAX_THREADS, os.cpu_count() or 1, len(parts)) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    return values


class RunningChecksum:
    """``checksum`` of bytes that come in pieces."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._part: HostArray = np.empty(_PART_BYTES, np.uint8)
        self._size = 0

    def update(self, piece: HostArray) -> None:
        """Add a contiguous ``uint8`` vector."""
        start = 0
        while start < len(piece):
            if self._size == _PART_BYTES:
                self._values.append(_of_part(self._part))
                self._size = 0
            stop = min(len(piece), start + _PART_BYTES - self._size)
            self._part[self._size : self._size + stop - start] = piece[start:stop]
            self._size += stop - start
            start = stop

    def value(self) -> int:
        """The checksum of everything so far."""
        last = _of_part(self._part[: self._size])
        return _of_parts([*self._values, last]) if self._values else last
