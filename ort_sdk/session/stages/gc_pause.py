"""Python's cyclic garbage collector, stopped for as long as sessions are made, and their modules imported."""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType

__all__ = ["CollectionPause", "gc_pause"]


class CollectionPause:
    """Stops the cyclic garbage collector while any thread is inside, and starts it again if it ran before.

    A session's graph is made of many small objects that live on. The collector would look through all of them, and through
    all that the process has, again and again without finding anything: what is dropped meanwhile is in no cycle. May be
    entered by any number of threads, and again by one that is inside.

    When it starts again, what there is counts as old: to look through all that is new would take as long as to load a model.
    The next collection of all generations does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_enabled:
                _age_all()
                gc.enable()

    def forget_other_threads(self) -> None:
        """In a process that has just been forked: the threads that were inside are not there."""
        if self._inside and self._was_enabled:
            gc.enable()
        self._lock = threading.Lock()
        self._inside = 0


def _age_all() -> None:
    """Move all that the collector knows to its oldest generation, unless the program keeps objects from it for good."""
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()


gc_pause = CollectionPause()
"""The process's one."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gc_pause.forget_other_threads)
