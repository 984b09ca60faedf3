"""What kernels use of the session that a thread runs: number of threads and log level."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from ort_sdk.api import InvalidArgument

__all__ = [
    "LOG_SEVERITY_KEY",
    "THREADS_KEY",
    "RunSettings",
    "configured_log_level",
    "configured_threads",
    "current_threads",
    "default_threads",
    "log_level",
    "openmp_default_threads",
    "set_log_level",
    "thread_local",
]

THREADS_KEY = "session.intra_op_num_threads"
"""Config entry: threads of a session's kernels; 0 for the default."""

LOG_SEVERITY_KEY = "session.log_severity_level"
"""Config entry: least severity that a session logs, 0 verbose to 4 fatal."""

_TOPOLOGY = Path("/sys/devices/system/cpu")


class RunSettings:
    """Settings of the run that a thread is in."""

    __slots__ = ("active_levels", "is_forked", "limits_blas", "log_level", "threads")

    def __init__(self) -> None:
        self.log_level: int | None = None
        """Least of Python's log levels that the session of this thread logs; None for the logger's own."""
        self.threads: int | None = None
        """Threads of the session; None outside of runs."""
        self.active_levels: int | None = None
        """OpenMP's nesting limit before this thread was limited to serial execution; None if it is not limited."""
        self.is_forked = False
        """Whether this thread was forked from a process with OpenMP threads, which a fork does not copy."""
        self.limits_blas = False
        """Whether the run of this thread has limited NumPy's BLAS to one thread."""


class _ThreadLocal(threading.local):
    """One object per thread: an access to a thread-local attribute takes as long as a call, so it is read once for all fields."""

    def __init__(self) -> None:
        self.current = RunSettings()


thread_local = _ThreadLocal()
"""Its attribute ``current`` has the settings of the calling thread."""


def current_threads() -> int:
    """Threads that a kernel may use now: those of the session that this thread runs, or the default."""
    return thread_local.current.threads or default_threads()


def log_level() -> int | None:
    """Least of Python's log levels of the session that this thread creates or runs; None for the logger's own."""
    return thread_local.current.log_level


def set_log_level(level: int | None) -> None:
    """Set the log level of the session that this thread creates or runs from now on; None for the logger's own."""
    thread_local.current.log_level = level


def configured_threads(config: Mapping[str, str]) -> int:
    """Threads of a session with these config entries.

    Raises:
        InvalidArgument: the entry is not a whole number of at least 0.
    """
    text = config.get(THREADS_KEY, "0")
    if not text.isdigit():
        raise InvalidArgument(f"config entry {THREADS_KEY} is {text!r}; it takes a whole number, 0 for the default")
    return int(text) or default_threads()


def configured_log_level(config: Mapping[str, str]) -> int | None:
    """Least of Python's log levels that a session with these config entries logs; None for the logger's own."""
    severity = config.get(LOG_SEVERITY_KEY, "")
    return (int(severity) + 1) * logging.DEBUG if severity.isdigit() else None


@functools.cache
def default_threads() -> int:
    """``OMP_NUM_THREADS`` if it is set, else the number of physical cores that this process may run on."""
    return _environment_threads() or len({_core(processor) for processor in _processors()})


@functools.cache
def openmp_default_threads() -> int:
    """The number of threads that OpenMP uses unless it is set: one per logical processor, or ``OMP_NUM_THREADS``."""
    return _environment_threads() or len(_processors())


def _environment_threads() -> int:
    """``OMP_NUM_THREADS``, at most one per logical processor; 0 if it is not set."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(len(_processors()), int(wanted)) if wanted.isdigit() else 0


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _core(processor: int) -> str:
    """An identifier of the physical core of a logical processor: the list of its siblings."""
    siblings = _TOPOLOGY / f"cpu{processor}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text(encoding="utf-8")
    except OSError:
        return str(processor)
