"""The bound on what the programs of a session hold: of its graph and bodies, all shapes, and all runs at the same time."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .program.cache import ProgramCache

__all__ = ["DEFAULT_LIMIT_BYTES", "ProgramMemory"]

DEFAULT_LIMIT_BYTES = 1 << 30


class IdlePrograms(Protocol):
    """Has program caches that no run is using."""

    def take_idle(self) -> list[ProgramCache]:
        """Those caches, for good."""


class ProgramMemory:
    """Counts bytes of arenas and folded values of program caches, and limits the number of caches. Thread-safe.

    One cache is always allowed. Where several hold more than the limit, as many go as it takes, and runs that find none go step
    by step from then on: to make programs again and again would take longer than they save.

    Args:
        limit_bytes: of all caches together.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        """Identity of a cache → bytes it holds."""
        self._max_caches: int | None = None
        """Largest number of caches, once the limit was reached."""
        self._idle: weakref.WeakSet[IdlePrograms] = weakref.WeakSet()
        self.is_exceeded = False
        """Whether caches have to go."""

    def join(self, idle: IdlePrograms) -> None:
        """Let caches be taken from there where memory of a device runs out."""
        with self._lock:
            self._idle.add(idle)

    def take_idle(self) -> list[ProgramCache]:
        """All caches of the session that no run is using, which are gone for it."""
        with self._lock:
            holders = list(self._idle)
        taken = [programs for holder in holders for programs in holder.take_idle()]
        for programs in taken:
            self.drop(programs)
        return taken

    @property
    def held_bytes(self) -> int:
        """Bytes that all caches hold."""
        with self._lock:
            return sum(self._held.values())

    def admit(self, programs: ProgramCache) -> bool:
        """Count one more cache, which holds nothing yet, if the limit allows it."""
        with self._lock:
            count, held = len(self._held), sum(self._held.values())
            has_room = held < self.limit_bytes and (self._max_caches is None or count < self._max_caches)
            if count and not has_room:
                return False
            self._held[id(programs)] = 0
            return True

    def count(self, programs: ProgramCache) -> None:
        """Note what a cache holds now."""
        with self._lock:
            self._held[id(programs)] = programs.held_bytes()
            if len(self._held) > 1 and sum(self._held.values()) > self.limit_bytes:
                self._max_caches = len(self._held) - 1
                self.is_exceeded = True

    def drop(self, programs: ProgramCache) -> None:
        """A cache is gone."""
        with self._lock:
            self._held.pop(id(programs), None)
            self.is_exceeded = len(self._held) > 1 and sum(self._held.values()) > self.limit_bytes
            if self.is_exceeded:
                self._max_caches = len(self._held) - 1
