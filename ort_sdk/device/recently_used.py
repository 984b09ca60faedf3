"""A mapping with an end: what was used least recently goes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["RecentlyUsed"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class RecentlyUsed(Generic[_K, _V]):
    """Keeps what was made for keys that depend on a model or on the shapes of a run, of which there is no end. Thread-safe.

    Args:
        most: entries that are kept.
    """

    __slots__ = ("_entries", "_lock", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[_K, _V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[_V]:
        """All that is kept."""
        with self._lock:
            return list(self._entries.values())

    def get(self, key: _K) -> _V | None:
        """What is kept for a key; None if there is nothing, or not any more."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def __setitem__(self, key: _K, value: _V) -> None:
        """Keep a value, which must not be None, in place of what was used least recently."""
        dropped = None
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._most:
                _, dropped = self._entries.popitem(last=False)
        # what ends with it may run anything, and is to run without the lock
        del dropped
