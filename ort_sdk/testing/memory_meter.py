"""A meter of device memory for tests: what there is now, the most there was, and an end to it."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["HeldMemory", "MemoryMeter"]


class MemoryMeter:
    """Counts pieces of memory of one device, and their bytes. Thread-safe; pieces may end in the middle of anything.

    Args:
        name: of the device, for errors.
        capacity_bytes: the bytes it has; None for no end.
    """

    def __init__(self, name: str, capacity_bytes: int | None = None) -> None:
        self.name = name
        self.capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._ended: deque[int] = deque()
        """Bytes of pieces that ended. Appending takes no lock, which a finalizer may not wait for."""
        self._pieces = self._nbytes = 0
        self._peak_pieces = self._peak_bytes = 0

    @property
    def pieces(self) -> int:
        """How many there are."""
        with self._lock:
            self._settle()
            return self._pieces

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        with self._lock:
            self._settle()
            return self._nbytes

    @property
    def peak_pieces(self) -> int:
        """The most there were since the start, or since the last ``reset_peaks``."""
        return self._peak_pieces

    @property
    def peak_bytes(self) -> int:
        """Their bytes, at the most."""
        return self._peak_bytes

    def reset_peaks(self) -> None:
        """Measure peaks from here on."""
        with self._lock:
            self._settle()
            self._peak_pieces, self._peak_bytes = self._pieces, self._nbytes

    def hold(self, nbytes: int) -> HeldMemory:
        """A piece of memory, counted as long as the object is there.

        Raises:
            MemoryError: more than the capacity.
        """
        with self._lock:
            self._settle()
            if self.capacity_bytes is not None and self._nbytes + nbytes > self.capacity_bytes:
                raise MemoryError(
                    f"device {self.name}: {nbytes} bytes asked, {self._nbytes} of {self.capacity_bytes} bytes are in use"
                )
            self._pieces += 1
            self._nbytes += nbytes
            self._peak_pieces = max(self._peak_pieces, self._pieces)
            self._peak_bytes = max(self._peak_bytes, self._nbytes)
        return HeldMemory(self, nbytes)

    def end(self, nbytes: int) -> None:
        """Count a piece no more."""
        self._ended.append(nbytes)

    def _settle(self) -> None:
        while self._ended:
            self._nbytes -= self._ended.popleft()
            self._pieces -= 1


class HeldMemory:
    """A piece of memory that a meter counts until this object ends.

    Args:
        meter: counts it already.
        nbytes: of it.
    """

    __slots__ = ("_meter", "_nbytes")

    def __init__(self, meter: MemoryMeter, nbytes: int) -> None:
        self._meter, self._nbytes = meter, nbytes

    def __del__(self) -> None:
        """Count it no more."""
        self._meter.end(self._nbytes)
