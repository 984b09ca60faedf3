"""Threads of a session: how many its kernels use, told to OpenMP and to NumPy's BLAS while it runs.

OpenMP's pool serves all sessions. NumPy's BLAS has one of its own, whose threads go on looking for work for milliseconds after
a product and take the processors from OpenMP's: products that go through it get one thread, so that there is one pool.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, RuntimeException

from .contention import works_alone
from .fp_errors import ignore_errors, restore_errors

__all__ = [
    "LOG_SEVERITY_KEY",
    "THREADS_KEY",
    "RunScope",
    "current_threads",
    "default_threads",
    "is_alone",
    "log_level",
    "log_level_of",
    "matrix_product",
    "openmp_default",
    "set_log_level",
    "team_of",
    "threads_of",
    "with_team",
]

THREADS_KEY = "session.intra_op_num_threads"
"""Config entry: threads of a session's kernels; 0 for the default."""

LOG_SEVERITY_KEY = "session.log_severity_level"
"""Config entry: least severity that a session logs, 0 verbose to 4 fatal."""

_TOPOLOGY = Path("/sys/devices/system/cpu")


class _Current:
    """What a thread runs."""

    __slots__ = ("is_forked", "levels", "limits_blas", "log_level", "threads")

    def __init__(self) -> None:
        self.log_level: int | None = None
        """Least of Python's levels that the session logs which this thread made or ran last; None for the logger's."""
        self.threads: int | None = None
        self.levels: int | None = None
        """How deep teams might be nested before they were limited to one thread; None if they are not."""
        self.is_forked = False
        self.limits_blas = False
        """Whether the run of this thread has limited NumPy's BLAS."""


class _Local(threading.local):
    """Asked once for all: each look at what a thread has of its own takes as long as a call."""

    def __init__(self) -> None:
        self.current = _Current()


_local = _Local()


def current_threads() -> int:
    """Threads a kernel may use now: those of the session that this thread runs, or the default."""
    return _local.current.threads or default_threads()


def log_level() -> int | None:
    """Least of Python's levels that the session wants to be logged which this thread makes or runs; None for the logger's."""
    return _local.current.log_level


def set_log_level(level: int | None) -> None:
    """Tell what the session wants to be logged that this thread makes or runs from now on."""
    _local.current.log_level = level


def is_alone() -> bool:
    """Whether teams that this thread starts have one thread now: others use the processors, or have gone with a fork."""
    return _local.current.levels is not None


def matrix_product(a: HostArray, b: HostArray, out: HostArray | None = None) -> HostArray:
    """NumPy's ``matmul``; in a run, BLAS uses one thread from the first product to the end."""
    current = _local.current
    if current.threads is not None and not current.limits_blas:
        current.limits_blas = True
        _blas_limit.enter()
    return np.matmul(a, b, out)


def with_team(call: Callable[[], object]) -> None:
    """Call what needs a whole team, although ``is_alone``.

    Raises:
        RuntimeException: this thread has been forked; its team is in another process.
    """
    if _local.current.is_forked:
        raise RuntimeException(
            "a kernel that needs several threads cannot run on the thread that was forked from a process with a session; "
            "run the session on another thread, set intra_op_num_threads to 1, or start processes with 'spawn'"
        )
    openmp = _openmp()
    openmp.omp_set_max_active_levels(_local.current.levels)
    try:
        call()
    finally:
        openmp.omp_set_max_active_levels(0)


@contextlib.contextmanager
def team_of(count: int) -> Iterator[None]:
    """Teams that this thread starts have so many threads, and what is made for a team is made for so many."""
    before = _openmp_threads(count)
    try:
        yield
    finally:
        if before is not None:
            _openmp_threads(before)


def threads_of(config: Mapping[str, str]) -> int:
    """Threads of a session with these config entries.

    Raises:
        InvalidArgument: the entry is no whole number from 0 on.
    """
    text = config.get(THREADS_KEY, "0")
    if not text.isdigit():
        raise InvalidArgument(f"config entry {THREADS_KEY} is {text!r}; it takes a whole number, 0 for the default")
    return int(text) or default_threads()


def log_level_of(config: Mapping[str, str]) -> int | None:
    """Least of Python's levels that a session with these config entries logs; None for the logger's."""
    severity = config.get(LOG_SEVERITY_KEY, "")
    return (int(severity) + 1) * logging.DEBUG if severity.isdigit() else None


@functools.cache
def default_threads() -> int:
    """The physical cores this process may run on, or what ``OMP_NUM_THREADS`` says."""
    return _wanted_threads() or len({_core(processor) for processor in _processors()})


@functools.cache
def openmp_default() -> int:
    """The threads OpenMP uses if nobody tells it."""
    return _wanted_threads() or len(_processors())


def _wanted_threads() -> int:
    """Threads that ``OMP_NUM_THREADS`` says, at most one per processor; 0 if it says nothing."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(len(_processors()), int(wanted)) if wanted.isdigit() else 0


def _processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _core(processor: int) -> str:
    """What names the core a processor is on."""
    siblings = _TOPOLOGY / f"cpu{processor}" / "topology" / "thread_siblings_list"
    try:
        return siblings.read_text(encoding="utf-8")
    except OSError:
        return str(processor)


class RunScope:
    """Context of one run.

    Args:
        threads: of the session.
        log_level: of the session, as ``log_level`` gives it.
    """

    __slots__ = ("_current", "_errors", "_is_alone", "_log_level", "_openmp", "_previous", "_threads")

    def __init__(self, threads: int, log_level: int | None = None) -> None:
        self._threads = threads
        self._log_level = log_level

    def __enter__(self) -> None:
        self._errors = ignore_errors()
        self._current = current = _local.current
        self._previous = current.threads
        current.threads = threads = self._threads
        current.log_level = self._log_level
        self._openmp, self._is_alone = _openmp_threads(threads), False
        if threads > 1 and current.levels is None and _openmp() is not None and works_alone(threads):
            self._is_alone = True
            _keep_to_one_thread()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        current = self._current
        if current.limits_blas:
            current.limits_blas = False
            _blas_limit.leave()
        if self._is_alone:
            _allow_teams()
        if self._openmp is not None:
            _openmp_threads(self._openmp)
        current.threads = self._previous
        restore_errors(self._errors)


def _openmp_threads(count: int) -> int | None:
    """Set the size of the teams that this thread starts; returns the size before if it was another."""
    openmp = _openmp()
    if openmp is None:
        return None
    before: int = openmp.omp_get_max_threads()
    if before == count:
        return None
    openmp.omp_set_num_threads(count)
    return before


def _keep_to_one_thread() -> None:
    """Let teams that this thread starts have one thread."""
    openmp = _openmp()
    _local.current.levels = openmp.omp_get_max_active_levels()
    openmp.omp_set_max_active_levels(0)


def _allow_teams() -> None:
    _openmp().omp_set_max_active_levels(_local.current.levels)
    _local.current.levels = None


def _after_fork() -> None:
    """OpenMP would wait for threads that the parent process has kept: the thread that forked goes on without them."""
    from . import libraries

    if libraries.is_openmp_loaded() and _openmp() is not None and not _local.current.is_forked:
        _local.current.is_forked = True
        if not is_alone():
            _keep_to_one_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _openmp() -> Any:
    """OpenMP's library, if it has work; else None."""
    from . import libraries

    if not (libraries.onednn().is_usable or libraries.numba().is_usable) or not libraries.has_openmp():
        return None
    # Its settings are told at once: nothing else of this process has to go on meanwhile.
    return ctypes.PyDLL(libraries.OPENMP_FILE)


class _BlasLimit:
    """NumPy's BLAS computes on one thread while any run is under way that multiplies with it; then as before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._before = 0

    def enter(self) -> None:
        functions = _blas()
        if functions is None:
            return
        with self._lock:
            self._runs += 1
            if self._runs == 1:
                self._before = functions[0]()
                functions[1](1)

    def leave(self) -> None:
        functions = _blas()
        if functions is None:
            return
        with self._lock:
            self._runs -= 1
            if not self._runs:
                functions[1](self._before)


_blas_limit = _BlasLimit()

_BLAS_PREFIXES = (("scipy_openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", "64_"), ("openblas_", ""))


@functools.cache
def _blas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's functions that get and set its threads, if NumPy brought one and OpenMP's pool does the work otherwise."""
    if _openmp() is None:
        return None
    folder = Path(np.__file__).parent
    for path in (*folder.with_name("numpy.libs").glob("*openblas*"), *folder.glob(".dylibs/*openblas*")):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(str(path))
            for prefix, suffix in _BLAS_PREFIXES:
                get = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                set_ = getattr(library, f"{prefix}set_num_threads{suffix}", None)
                if get is not None and set_ is not None:
                    set_.restype = None
                    return get, set_
    return None
