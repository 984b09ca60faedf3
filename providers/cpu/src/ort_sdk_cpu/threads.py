"""Threads of a session: how many its kernels use, told to OpenMP and to NumPy's BLAS while it runs.

OpenMP's pool serves all sessions. NumPy's BLAS has one of its own, whose threads go on looking for work for milliseconds after
a product and take the processors from OpenMP's: products that go through it get one thread, so that there is one pool.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from ort_sdk.api import InvalidArgument

__all__ = ["THREADS_KEY", "RunScope", "current_threads", "default_threads", "openmp_default", "threads_of"]

THREADS_KEY = "session.intra_op_num_threads"
"""Config entry: threads of a session's kernels; 0 for the default."""

_TOPOLOGY = Path("/sys/devices/system/cpu")


class _Current(threading.local):
    threads: int | None = None


_current = _Current()


def current_threads() -> int:
    """Threads a kernel may use now: those of the session that this thread runs, or the default."""
    return _current.threads or default_threads()


def threads_of(config: Mapping[str, str]) -> int:
    """Threads of a session with these config entries.

    Raises:
        InvalidArgument: the entry is no whole number from 0 on.
    """
    text = config.get(THREADS_KEY, "0")
    if not text.isdigit():
        raise InvalidArgument(f"config entry {THREADS_KEY} is {text!r}; it takes a whole number, 0 for the default")
    return int(text) or default_threads()


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
        return siblings.read_text(encoding="ascii")
    except OSError:
        return str(processor)


class RunScope:
    """Context of one run.

    Args:
        threads: of the session.
        has_products: whether it may compute products with NumPy.
    """

    __slots__ = ("_blas", "_errors", "_has_products", "_openmp", "_previous", "_threads")

    def __init__(self, threads: int, *, has_products: bool) -> None:
        self._threads = threads
        self._has_products = has_products
        # Infinities and NaNs are values of ONNX's operators: NumPy's warnings about them stay off.
        self._errors = np.errstate(all="ignore")

    def __enter__(self) -> None:
        self._errors.__enter__()
        self._previous = _current.threads
        _current.threads = self._threads
        self._openmp = _openmp_threads(self._threads)
        if self._has_products:
            _blas_limit.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._has_products:
            _blas_limit.leave()
        if self._openmp is not None:
            _openmp_threads(self._openmp)
        _current.threads = self._previous
        self._errors.__exit__(kind, error, traceback)


def _openmp_threads(count: int) -> int | None:
    """Set the size of the teams that this thread starts; returns the size before if it was another."""
    functions = _openmp()
    if functions is None:
        return None
    get, set_ = functions
    before = get()
    if before == count:
        return None
    set_(count)
    return before


@functools.cache
def _openmp() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    from . import libraries

    if not (libraries.onednn().is_usable or libraries.numba().is_usable) or not libraries.has_openmp():
        return None
    library = ctypes.CDLL(libraries.OPENMP_FILE)
    return library.omp_get_max_threads, library.omp_set_num_threads


class _BlasLimit:
    """NumPy's BLAS computes on one thread while any run is under way; then as before."""

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
