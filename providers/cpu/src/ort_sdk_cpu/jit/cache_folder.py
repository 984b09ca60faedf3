"""Folders of cached kernels, which are compiled once per machine.

The cache is in the package's own folder if that is writable, else in the user's cache folder; ``ORT_SDK_CPU_CACHE_DIR`` names
another one, as does ``ORT_SDK_CACHE_DIR``, of which it is the subfolder ``cpu``. Only folders that no other user can write to are
used (``ort_sdk.api.file_trust``). The cache is optional: where a folder cannot be created, written or locked, kernels are
compiled and not cached, and the reason is logged.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ort_sdk.api.cache_folder import cache_subfolder, user_cache
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.file_trust import make_private_folder, make_subfolder, require_trusted_folder
from ort_sdk_cpu.platform.run_settings import log_level
from ort_sdk_cpu.platform.targets import current_target

__all__ = [
    "CACHE_VARIABLE",
    "KernelFolders",
    "build_lock",
    "cache_folder",
    "kernel_folders",
    "log_cache_failure",
    "log_compiled",
    "log_once",
]

CACHE_VARIABLE = "ORT_SDK_CPU_CACHE_DIR"
"""Environment variable: folder for compiled kernels."""

_PACKAGE = Path(__file__).parents[1]
_numbers = itertools.count(1)
_logger = logging.getLogger("ort_sdk.cpu")


@dataclass(frozen=True, slots=True)
class KernelFolders:
    """Trusted cache folders."""

    readable: tuple[Path, ...]
    """Folders to look for kernels in, in this order."""
    writable: Path | None
    """Folder for new kernels; None if none is writable."""
    unused: tuple[tuple[Path, str], ...] = ()
    """Folders that are not used, with the reason."""


@functools.cache
def kernel_folders() -> KernelFolders:
    """The trusted cache folders of this process's target. Folders that are not trusted are logged."""
    name = f"kernels-{current_target().name}"
    readable: list[Path] = []
    unused: list[tuple[Path, str]] = []
    writable = None
    for parents in _parents():
        folder = parents[-1] / name
        try:
            if writable is None:
                _make(parents, name)
            require_trusted_folder(folder)
        except OSError as error:
            # A folder that is missing where only root can write is normal: the next one is used.
            if os.path.lexists(folder):
                log_cache_failure(f"the folder {folder}", error)
            unused.append((folder, error.strerror or str(error)))
            continue
        readable.append(folder)
        if writable is None and _is_writable(folder):
            writable = folder
    return KernelFolders(tuple(readable), writable, tuple(unused))


def cache_folder() -> Path | None:
    """Folder for new kernels; None if none is writable."""
    return kernel_folders().writable


def _parents() -> Iterator[tuple[Path, ...]]:
    """Candidate parents of the cache folder: chains of nested folders, of which all but the first are created if missing."""
    configured = os.environ.get(CACHE_VARIABLE)
    folder = Path(configured).absolute() if configured else cache_subfolder("cpu")
    if folder is not None:
        yield (folder,)
        return
    package = _PACKAGE / "jit"
    yield package, package / "__pycache__"
    cache = user_cache()
    if cache is not None:
        yield (cache / "ort_sdk_cpu",)


def _make(parents: tuple[Path, ...], name: str) -> None:
    """Create missing folders, with the permissions of the existing folder that they are in.

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


@contextlib.contextmanager
def build_lock(path: Path | None) -> Iterator[None]:
    """Context in which one process at a time creates a file, where the system has file locks: others wait, then find the file.

    The lock is a file beside it, so that other files can be created meanwhile. It is reentrant for the thread that holds it.
    Without file locks, as on some network file systems, several processes may create the same file.

    Args:
        path: of the file; None for no lock.
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
            # Waiting processes have this lock file open and find the file; later ones create a new lock file and find it, too.
            with contextlib.suppress(OSError):
                lock.unlink(missing_ok=True)
            file.close()


def _locked(path: Path) -> IO[bytes] | None:
    """A locked lock file; None where that fails."""
    import fcntl

    file = None
    try:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        log_cache_failure(f"the lock {path}", error)
        if file is not None:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        return None
    return file


class _Held(threading.local):
    """Paths whose locks this thread holds."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


def log_compiled(name: str, seconds: float) -> None:
    """Log that a kernel was compiled.

    Args:
        name: of the kernel.
        seconds: that compiling took.
    """
    folder = cache_folder()
    result = f"kept in {folder}" if folder is not None else f"not kept, as no folder can be written: set {CACHE_VARIABLE}"
    _log(logging.INFO, f"compiled CPU kernel {next(_numbers)}, {name}, in {seconds:.1f} s ({result})")


def log_cache_failure(what: str, error: OSError) -> None:
    """Log, once per process, that compiled kernels cannot be cached or read.

    Args:
        what: the file, folder or lock that failed.
        error: the system's error.
    """
    reason, advice = error.strerror or str(error), "the kernels are compiled and may not be kept"
    log_once("cache", f"{what} of compiled CPU kernels cannot be used: {reason}; {advice}")


def log_once(subject: str, message: str) -> None:
    """Log a warning, if nothing was logged in this process about its subject.

    Args:
        subject: what it is about.
        message: the warning.
    """
    if subject not in _logged:
        _logged.add(subject)
        _log(logging.WARNING, message)


_logged: set[str] = set()
"""Subjects of warnings."""


def _log(severity: int, message: str) -> None:
    """Log a message, if the session that this thread creates or runs logs those of its severity."""
    level = log_level()
    if level is None:
        _logger.log(severity, "%s", message)
    elif level <= severity:
        _logger.handle(_logger.makeRecord(_logger.name, severity, __file__, 0, message, (), None))
