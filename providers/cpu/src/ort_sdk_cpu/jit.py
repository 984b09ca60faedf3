"""Where compiled kernels are kept: compiled once per machine, then read from a folder.

That is the package's own folder if it can be written, else the user's cache folder; ``ORT_SDK_CPU_CACHE_DIR`` names another
one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .digests import short_digest
from .instruction_set import has_vnni, instruction_set

__all__ = ["CACHE_VARIABLE", "cache_folder", "inner", "one_process", "source_hash", "tell_compiled"]

CACHE_VARIABLE = "ORT_SDK_CPU_CACHE_DIR"
"""Environment variable: folder for compiled kernels."""

_PACKAGE = Path(__file__).parent
_SHARED_SOURCES = ("simd",)
"""Folders whose code becomes part of kernels; numba itself looks at a kernel's own file only."""

_numbers = itertools.count(1)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels of the same file call; their code becomes part of the kernels'."""
    import numba

    options = {"nogil": True, "error_model": "numpy", "forceinline": True}
    return numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None if no folder can be written."""
    features = (
        instruction_set().name.lower(),
        *(["vnni"] if has_vnni() else []),
    )
    key = "-".join((source_hash(), *features))
    given = os.environ.get(CACHE_VARIABLE) or os.environ.get("NUMBA_CACHE_DIR")
    roots = [Path(given)] if given else [_PACKAGE / "compiled" / "__pycache__", _user_cache()]
    for root in roots:
        folder = root / f"kernels-{key}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
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


@functools.cache
def source_hash() -> str:
    """Hash of the code that kernels share."""
    paths = [path for folder in _SHARED_SOURCES for path in sorted((_PACKAGE / folder).glob("*.py"))]
    return short_digest(*(path.read_bytes() for path in paths))[:12]


@contextlib.contextmanager
def one_process(path: Path | None) -> Iterator[None]:
    """Make a file in one process at a time, where the system has locks of files: others wait and then find it there.

    The lock is a file beside it; other files are made meanwhile. A thread that holds the lock goes on: the system would let it
    wait for itself.
    """
    if path is None or sys.platform == "win32" or path in _held.paths:
        yield
        return
    import fcntl

    lock = path.with_name(f"{path.name}.lock")
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _held.paths.add(path)
        try:
            yield
        finally:
            _held.paths.remove(path)
            # Those who wait have this file open and find what was made. Who comes later takes a new one, and finds it, too.
            lock.unlink(missing_ok=True)


class _Held(threading.local):
    """Files whose locks this thread holds."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


def tell_compiled(name: str, seconds: float, folder: Path | None) -> None:
    """One line on standard error about a kernel that had to be compiled."""
    place = f"kept in {folder}" if folder is not None else f"not kept, as no folder can be written: set {CACHE_VARIABLE}"
    if sys.stderr is not None:
        sys.stderr.write(f"ort_sdk: compiled CPU kernel {next(_numbers)}, {name}, in {seconds:.1f} s ({place})\n")
