"""Applies a session's number of threads to OpenMP and to NumPy's BLAS while it runs.

OpenMP's thread pool serves all sessions. NumPy's BLAS has a pool of its own, whose threads spin for milliseconds after a matrix
product and take processors from OpenMP's: BLAS is limited to one thread, so that there is one pool.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, RuntimeException

from . import libraries
from .contention import should_run_serially
from .fp_errors import ignore_errors, restore_errors
from .run_settings import thread_local

__all__ = ["RunScope", "blas_matmul", "is_serial", "openmp_threads", "run_with_team"]


def is_serial() -> bool:
    """Whether parallel regions of this thread have one thread now: the machine is busy, or this process was forked."""
    return thread_local.current.active_levels is not None


def blas_matmul(a: HostArray, b: HostArray, out: HostArray | None = None) -> HostArray:
    """NumPy's ``matmul``; within a run, BLAS is limited to one thread from the first product to the run's end."""
    current = thread_local.current
    if current.threads is not None and not current.limits_blas:
        current.limits_blas = True
        _blas_limit.enter()
    return np.matmul(a, b, out)


def run_with_team(call: Callable[[], object]) -> None:
    """Call something that needs all its threads, although this thread ``is_serial``.

    Args:
        call: starts the parallel region.

    Raises:
        RuntimeException: this thread was forked; OpenMP's threads are in the parent process.
    """
    if thread_local.current.is_forked:
        raise RuntimeException(
            "a kernel that needs several threads cannot run on the thread that was forked from a process with a session; "
            "run the session on another thread, set intra_op_num_threads to 1, or start processes with 'spawn'"
        )
    openmp = _openmp()
    openmp.omp_set_max_active_levels(thread_local.current.active_levels)
    try:
        call()
    finally:
        openmp.omp_set_max_active_levels(0)


@contextlib.contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Context in which parallel regions of this thread, and primitives created on it, have ``count`` threads."""
    before = _set_openmp_threads(count)
    try:
        yield
    finally:
        if before is not None:
            _set_openmp_threads(before)


class RunScope:
    """Context of one run.

    Args:
        threads: number of threads of the session.
        log_level: of the session, as ``run_settings.log_level`` returns it.
    """

    __slots__ = ("_current", "_errors", "_is_alone", "_log_level", "_openmp", "_previous", "_threads")

    def __init__(self, threads: int, log_level: int | None = None) -> None:
        self._threads = threads
        self._log_level = log_level

    def __enter__(self) -> None:
        self._errors = ignore_errors()
        self._current = current = thread_local.current
        self._previous = current.threads
        current.threads = threads = self._threads
        current.log_level = self._log_level
        self._openmp, self._is_alone = _set_openmp_threads(threads), False
        if threads > 1 and current.active_levels is None and _openmp() is not None and should_run_serially(threads):
            self._is_alone = True
            _disable_parallel_regions()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        current = self._current
        if current.limits_blas:
            current.limits_blas = False
            _blas_limit.leave()
        if self._is_alone:
            _enable_parallel_regions()
        if self._openmp is not None:
            _set_openmp_threads(self._openmp)
        current.threads = self._previous
        restore_errors(self._errors)


def _set_openmp_threads(count: int) -> int | None:
    """Set the number of threads of this thread's parallel regions; returns the number before if it was different."""
    openmp = _openmp()
    if openmp is None:
        return None
    before: int = openmp.omp_get_max_threads()
    if before == count:
        return None
    openmp.omp_set_num_threads(count)
    return before


def _disable_parallel_regions() -> None:
    """Let parallel regions of this thread have one thread."""
    openmp = _openmp()
    thread_local.current.active_levels = openmp.omp_get_max_active_levels()
    openmp.omp_set_max_active_levels(0)


def _enable_parallel_regions() -> None:
    _openmp().omp_set_max_active_levels(thread_local.current.active_levels)
    thread_local.current.active_levels = None


def _after_fork() -> None:
    """Disable parallel regions of a forked thread: OpenMP would wait for threads that exist in the parent process only."""
    current = thread_local.current
    if libraries.is_openmp_loaded() and _openmp() is not None and not current.is_forked:
        current.is_forked = True
        if not is_serial():
            _disable_parallel_regions()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _openmp() -> Any:
    """OpenMP's library if a library of this provider uses it; else None."""
    if not (libraries.onednn().is_usable or libraries.compiled_kernels().is_usable) or not libraries.has_openmp():
        return None
    # PyDLL keeps the GIL: setting a number takes less time than releasing the lock and taking it again.
    return ctypes.PyDLL(libraries.OPENMP_FILE)


class _BlasLimit:
    """Limits NumPy's BLAS to one thread while any run that uses it is under way, and restores its number of threads then."""

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
    """Getter and setter of OpenBLAS's number of threads, if NumPy's wheel has one and OpenMP is in use; else None."""
    if _openmp() is None:
        return None
    folder = Path(np.__file__).parent
    for path in (*folder.with_name("numpy.libs").glob("*openblas*"), *folder.glob(".dylibs/*openblas*")):
        with contextlib.suppress(OSError):
            found = _blas_functions(ctypes.CDLL(str(path)))
            if found is not None:
                return found
    return None


def _blas_functions(library: ctypes.CDLL) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    for prefix, suffix in _BLAS_PREFIXES:
        get = getattr(library, f"{prefix}get_num_threads{suffix}", None)
        set_ = getattr(library, f"{prefix}set_num_threads{suffix}", None)
        if get is not None and set_ is not None:
            set_.restype = None
            return get, set_
    return None
