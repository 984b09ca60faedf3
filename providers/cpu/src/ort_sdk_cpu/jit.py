"""Kernels compiled by numba: once per machine, then read from a folder.

A module of ``ort_sdk_cpu.compiled`` declares kernels with their signatures. Nothing is compiled, and numba is not imported,
until a binder asks for a kernel. What is compiled is kept in the package's own folder if that can be written, else in the
user's cache folder; ``ORT_SDK_CPU_CACHE_DIR`` names another one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import libraries
from .instruction_set import has_vnni, instruction_set

__all__ = ["CACHE_VARIABLE", "Kernel", "cache_folder", "inner", "kernel", "load", "one_process", "source_hash", "tell_compiled"]

CACHE_VARIABLE = "ORT_SDK_CPU_CACHE_DIR"
"""Environment variable: folder for compiled kernels."""

_PACKAGE = Path(__file__).parent
_SHARED_SOURCES = ("simd",)
"""Folders whose code becomes part of kernels; numba itself looks at a kernel's own file only."""

_lock = threading.RLock()
_numbers = itertools.count(1)


class Kernel:
    """A function that is compiled when it is first asked for.

    Args:
        function: its source.
        signature: numba's, of integers (addresses, sizes) and floats.
        is_parallel: whether it has ``prange`` loops.
    """

    def __init__(self, function: Callable[..., Any], signature: str, *, is_parallel: bool) -> None:
        self.name = function.__name__
        self._function = function
        self._signature = signature
        self._is_parallel = is_parallel

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        """The machine code, called without the interpreter's lock; read from the folder if it has it."""
        with _lock:
            return _compile(self._function, self._signature, is_parallel=self._is_parallel)


def kernel(signature: str, *, parallel: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorator of kernels.

    Args:
        signature: numba's, as ``void(intp, intp, float32)``.
        parallel: it has ``prange`` loops. It then runs on one thread where there is no OpenMP.
    """
    return lambda function: Kernel(function, signature, is_parallel=parallel)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels of the same file call; their code becomes part of the kernels'."""
    import numba

    options = {"nogil": True, "error_model": "numpy", "forceinline": True}
    return numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


def load(module: str, name: str) -> Callable[..., Any]:
    """A compiled kernel.

    Args:
        module: of ``ort_sdk_cpu.compiled``.
        name: the kernel's.

    Only where ``libraries.numba()`` is usable.
    """
    libraries.has_openmp()
    found: Kernel = getattr(importlib.import_module(f"{__package__}.compiled.{module}"), name)
    return found.compiled


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None if no folder can be written."""
    features = (
        instruction_set().name.lower(),
        *(["vnni"] if has_vnni() else []),
        *(["omp"] if libraries.has_parallel_numba() else []),
    )
    key = "-".join((source_hash(), *features))
    given = os.environ.get(CACHE_VARIABLE) or os.environ.get("NUMBA_CACHE_DIR")
    roots = [Path(given)] if given else [_PACKAGE / "compiled" / "__pycache__", _user_cache()]
    for root in roots:
        folder = root / f"kernels-{key}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ort_sdk_cpu"


def source_hash() -> str:
    """Hash of the code that kernels share."""
    import hashlib

    digest = hashlib.sha256()
    for folder in _SHARED_SOURCES:
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _compile(function: Callable[..., Any], signature: str, *, is_parallel: bool) -> Callable[..., Any]:
    import numba

    folder = cache_folder()
    with _caching(numba.config, folder):
        dispatcher = numba.njit(
            function,
            nogil=True,
            error_model="numpy",
            cache=folder is not None,
            parallel=is_parallel and libraries.has_parallel_numba(),
        )
    with one_process(folder), _progress(dispatcher, folder):
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher  # type: ignore[no-any-return]


@contextlib.contextmanager
def _caching(config: Any, folder: Path | None) -> Iterator[None]:
    """Make numba keep what it compiles in the folder."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        yield
    finally:
        config.CACHE_DIR = before


@contextlib.contextmanager
def one_process(folder: Path | None) -> Iterator[None]:
    """Hold the folder's lock, where the system has locks of files: others wait and then find the kernel there."""
    if folder is None or sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress(dispatcher: Any, folder: Path | None) -> Iterator[None]:
    """Tell on standard error of a kernel that has to be compiled."""
    start = time.perf_counter()
    yield
    if not dispatcher.stats.cache_misses and folder is not None:
        return
    tell_compiled(dispatcher.__name__, time.perf_counter() - start, folder)


def tell_compiled(name: str, seconds: float, folder: Path | None) -> None:
    """One line on standard error about a kernel that had to be compiled."""
    place = f"kept in {folder}" if folder is not None else f"not kept, as no folder can be written: set {CACHE_VARIABLE}"
    if sys.stderr is not None:
        sys.stderr.write(f"ort_sdk: compiled CPU kernel {next(_numbers)}, {name}, in {seconds:.1f} s ({place})\n")
