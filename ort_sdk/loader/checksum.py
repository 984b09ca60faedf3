"""The checksum of weights in files: CRC-32, of parts side by side."""

from __future__ import annotations

import os
import zlib

import numpy as np

from ort_sdk.api import HostArray

__all__ = ["CHECKSUM_NAME", "RunningChecksum", "checksum"]

CHECKSUM_NAME = "crc32"
"""Word before a checksum's digits in files."""
_PART_BYTES = 16 << 20
_MAX_THREADS = 4


def checksum(data: HostArray) -> int:
    """CRC-32 of the CRC-32s of parts of 16 MiB (little endian), or of the bytes themselves if there is one part.

    Finds damage; it is no defence against somebody who may write the file.

    Args:
        data: a contiguous ``uint8`` vector.
    """
    if len(data) <= _PART_BYTES:
        return zlib.crc32(data.data)
    from concurrent.futures import ThreadPoolExecutor

    parts = [data[start : start + _PART_BYTES].data for start in range(0, len(data), _PART_BYTES)]
    # zlib lets other threads run meanwhile.
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        return zlib.crc32(np.fromiter(pool.map(zlib.crc32, parts), dtype="<u4", count=len(parts)).tobytes())


class RunningChecksum:
    """``checksum`` of bytes that come in pieces."""

    def __init__(self) -> None:
        self._parts: list[int] = []
        self._current = 0
        self._size = 0

    def update(self, piece: HostArray) -> None:
        """Add a contiguous ``uint8`` vector."""
        start = 0
        while start < len(piece):
            if self._size == _PART_BYTES:
                self._parts.append(self._current)
                self._current = self._size = 0
            stop = min(len(piece), start + _PART_BYTES - self._size)
            self._current = zlib.crc32(piece[start:stop].data, self._current)
            self._size += stop - start
            start = stop

    def value(self) -> int:
        """The checksum of everything so far."""
        if not self._parts:
            return self._current
        return zlib.crc32(np.array([*self._parts, self._current], "<u4").tobytes())
