"""Where compiled kernels are kept: compiled once per machine, then read from a folder.

That is the package's own folder if it can be written, else the user's cache folder; ``ORT_SDK_CPU_CACHE_DIR`` names another
one. Only folders that nobody else can write are used (``ort_sdk.api.file_trust``). Nothing depends on them: where one cannot be
made, written or locked, kernels are compiled and not kept, and a line in the log says why.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.file_trust import make_private_folder, make_subfolder, require_trusted_folder
from ort_sdk_cpu.platform.cpu_features import has_vnni, instruction_set
from ort_sdk_cpu.platform.run_settings import log_level

from .digests import short_digest

__all__ = [
    "CACHE_VARIABLE",
    "KernelFolders",
    "cache_folder",
    "inner",
    "kernel_folders",
    "one_process",
    "source_hash",
    "tell_compiled",
    "tell_unkept",
]

CACHE_VARIABLE = "ORT_SDK_CPU_CACHE_DIR"
"""Environment variable: folder for compiled kernels."""

_PACKAGE = Path(__file__).parents[1]
_SHARED_SOURCES = ("simd/*.py", "*/microkernels/*.py", "*/*/microkernels/*.py")
"""Files whose code becomes part of kernels; numba itself looks at a kernel's own file only.

No ``**``: each process would walk all folders, with the kernels that the package's own folder keeps.
"""

_numbers = itertools.count(1)
_logger = logging.getLogger("ort_sdk.cpu")


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of functions that kernels of the same file call; their code becomes part of the kernels'."""
    import numba

    options = {"nogil": True, "error_model": "numpy", "forceinline": True}
    return numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


@dataclass(frozen=True, slots=True)
class KernelFolders:
    """Folders that may be used."""

    readable: tuple[Path, ...]
    """Where to look for kernels, in this order."""
    writable: Path | None
    """Where new ones go; None if no folder can be written."""


@functools.cache
def kernel_folders() -> KernelFolders:
    """The folders of compiled kernels that may be used. Those that may not are logged."""
    features = (
        instruction_set().name.lower(),
        *(["vnni"] if has_vnni() else []),
    )
    name = f"kernels-{'-'.join((source_hash(), *features))}"
    readable: list[Path] = []
    writable = None
    for parents in _parents():
        folder = parents[-1] / name
        try:
            if writable is None:
                _make(parents, name)
            require_trusted_folder(folder)
        except OSError as error:
            # Where root alone can write there is often none, and the next place is as good.
            if os.path.lexists(folder):
                tell_unkept(f"the folder {folder}", error)
            continue
        readable.append(folder)
        if writable is None and _is_writable(folder):
            writable = folder
    return KernelFolders(tuple(readable), writable)


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None if no folder can be written."""
    return kernel_folders().writable


def _parents() -> Iterator[tuple[Path, ...]]:
    """Where the folder may be: each a folder, and those below it that lead there, if they need not be there already."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        yield (Path(given).absolute(),)
        return
    package = _PACKAGE / "jit"
    yield package, package / "__pycache__"
    cache = _user_cache()
    if cache is not None:
        yield (cache,)


def _make(parents: tuple[Path, ...], name: str) -> None:
    """Make what is missing. A folder that was there says how readable those in it are.

    Raises:
        OSError: the system refuses.
    """
    if not parents[0].is_dir():
        make_private_folder(parents[-1] / name)
        return
    for parent, child in zip(parents, (*[path.name for path in parents[1:]], name), strict=True):
        make_subfolder(parent, child)


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _user_cache() -> Path | None:
    """The user's folder for caches; None for a user without a home."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    # A relative one would mean another folder in each working directory.
    return base / "ort_sdk_cpu" if base.is_absolute() else None


@functools.cache
def source_hash() -> str:
    """Hash of the code that kernels share."""
    paths = [path for pattern in _SHARED_SOURCES for path in sorted(_PACKAGE.glob(pattern))]
    return short_digest(*(path.read_bytes() for path in paths))[:12]


@contextlib.contextmanager
def one_process(path: Path | None) -> Iterator[None]:
    """Make a file in one process at a time, where the system has locks of files: others wait and then find it there.

    The lock is a file beside it; other files are made meanwhile. A thread that holds the lock goes on: the system would let it
    wait for itself. Without locks, as on some network file systems, several processes may make the same file.
    """
    if path is None or sys.platform == "win32" or path in _held.paths:
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    file = _locked(lock)
    _held.paths.add(path)
    try:
        yield
    finally:
        _held.paths.remove(path)
        if file is not None:
            # Those who wait have this file open and find what was made. Who comes later takes a new one, and finds it, too.
            with contextlib.suppress(OSError):
                lock.unlink(missing_ok=True)
            file.close()


def _locked(path: Path) -> IO[bytes] | None:
    """The file of a lock, locked; None where that cannot be."""
    import fcntl

    file = None
    try:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        tell_unkept(f"the lock {path}", error)
        if file is not None:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return None
    return file


class _Held(threading.local):
    """Files whose locks this thread holds."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


def tell_compiled(name: str, seconds: float) -> None:
    """One line in the log about a kernel that had to be compiled."""
    folder = cache_folder()
    place = f"kept in {folder}" if folder is not None else f"not kept, as no folder can be written: set {CACHE_VARIABLE}"
    _warn(f"ort_sdk: compiled CPU kernel {next(_numbers)}, {name}, in {seconds:.1f} s ({place})")


def tell_unkept(what: str, error: OSError) -> None:
    """One line in the log, once per process, about what keeps compiled kernels from being kept or found."""
    if not _was_told:
        _was_told.append(what)
        reason = error.strerror or str(error)
        _warn(f"ort_sdk: {what} of compiled CPU kernels cannot be used: {reason}; the kernels are compiled and may not be kept")


_was_told: list[str] = []


def _warn(message: str) -> None:
    """A warning, as far as the session that this thread makes or runs wants warnings."""
    level = log_level()
    if level is None:
        _logger.warning("%s", message)
    elif level <= logging.WARNING:
        _logger.handle(_logger.makeRecord(_logger.name, logging.WARNING, __file__, 0, message, (), None))
