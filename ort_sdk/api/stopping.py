"""The flag that stops a run, in memory that compiled code can look at."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType

from .errors import Fail

__all__ = ["STOPPED", "StopFlag", "Stoppable", "check_stopped", "current", "stop_flag_address"]

STOPPED = "Exiting due to terminate flag being set to true."
"""What the error says that ends a run."""


class StopFlag:
    """A word that is 0 until runs shall stop. Any thread may set it."""

    __slots__ = ("_word", "address")

    def __init__(self) -> None:
        self._word = ctypes.c_int64(0)
        self.address = ctypes.addressof(self._word)
        """Where it is, as long as this object lives."""

    @property
    def is_set(self) -> bool:
        """Whether runs shall stop."""
        return bool(self._word.value)

    @is_set.setter
    def is_set(self, value: bool) -> None:
        self._word.value = value


class _Current(threading.local):
    address = 0
    """Of the flag of the run on this thread; 0 if that cannot be stopped."""


current = _Current()


class Stoppable:
    """A context in which what runs on this thread looks at a flag.

    Args:
        flag: that stops it.
    """

    __slots__ = ("_flag", "_previous")

    def __init__(self, flag: StopFlag) -> None:
        self._flag, self._previous = flag, 0

    def __enter__(self) -> None:
        self._previous = current.address
        current.address = self._flag.address

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        current.address = self._previous


def stop_flag_address() -> int:
    """Address of the flag of the run on this thread, an int64 that is 0 until the run shall stop; 0 if it cannot be stopped.

    A kernel that computes for long looks there now and then, ends early if the flag is set, and calls ``check_stopped``.
    """
    return current.address


def check_stopped() -> None:
    """End the run on this thread if its flag is set: what compiled code wrote may not be complete.

    Raises:
        Fail: it is.
    """
    if current.address and ctypes.c_int64.from_address(current.address).value:
        raise Fail(STOPPED)
