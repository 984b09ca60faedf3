"""Files that get their name when they are complete: whenever a process ends, what has a name can be read."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

__all__ = ["UnfinishedFile", "locked_folder", "remove_leftovers", "write_whole"]

_DESCRIPTORS = Path("/proc/self/fd")
_NAMELESS = getattr(os, "O_TMPFILE", 0) if _DESCRIPTORS.is_dir() else 0
_CANNOT_BE_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_MODE = 0o666


class UnfinishedFile:
    """A file being written beside its final path.

    On Linux it has no name meanwhile, so that a process that is killed leaves nothing behind. Where that is not possible it
    has a temporary one and holds a lock, which ends with the process: ``remove_leftovers`` finds such files.

    Args:
        folder: existing folder, on the file system of the final path.
        name: final name; temporary names are made of it.
        mode: who may read and write it, as far as the user's mask allows; by default all.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path, name: str, mode: int = _MODE) -> None:
        self._folder = folder
        self._name = name
        descriptor, self._temporary = _open(folder, name, mode)
        self.file: IO[bytes] = os.fdopen(descriptor, "w+b")

    def complete(self) -> None:
        """Bring everything written so far to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def publish(self, path: Path, *, sync_folder: bool = True) -> None:
        """Rename the file to ``path``, in one step. May be called again for another path of the folder.

        Args:
            path: its final path.
            sync_folder: wait until the disk has the name, too. Without, it may be missing if the machine stops.

        Raises:
            OSError: the file system refuses.
        """
        name = _temporary_name(self._folder, self._name)
        if self._temporary is None:
            _give_name(self.file.fileno(), name)
        else:
            os.link(self._temporary, name)
        name.replace(path)
        if sync_folder:
            _sync_folder(self._folder)

    def close(self) -> None:
        """Let go of the file; without a name it is gone."""
        self.file.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /) -> None:
        self.close()


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file, and replace an older one if there is one.

    Raises:
        OSError: the file system refuses.
    """
    with UnfinishedFile(path.parent, path.name) as unfinished:
        unfinished.file.write(content)
        unfinished.complete()
        unfinished.publish(path)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes and threads out of a folder's files, as far as they ask; the lock leaves no file behind."""
    if os.name != "posix":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove what killed processes left of unfinished files of a name. Files still being written stay."""
    for file in folder.glob(f".{glob.escape(name)}.*.tmp"):
        with contextlib.suppress(OSError):
            descriptor = os.open(file, _FLAGS)
            try:
                if _lock(descriptor, wait=False):
                    file.unlink()
            finally:
                os.close(descriptor)


def _open(folder: Path, name: str, mode: int) -> tuple[int, Path | None]:
    if _NAMELESS:
        try:
            descriptor = os.open(folder, _FLAGS | _NAMELESS, mode)
        except OSError as error:
            if error.errno not in _CANNOT_BE_NAMELESS or not folder.is_dir():
                raise
        else:
            _lock(descriptor, wait=False)
            return descriptor, None
    while True:
        temporary = _temporary_name(folder, name)
        descriptor = os.open(temporary, _FLAGS | os.O_CREAT | os.O_EXCL, mode)
        _lock(descriptor, wait=True)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        # Another process took it for a leftover before it was locked.
        os.close(descriptor)


def _temporary_name(folder: Path, name: str) -> Path:
    return folder / f".{name}.{os.urandom(8).hex()}.tmp"


def _give_name(descriptor: int, path: Path) -> None:
    # With a folder descriptor Python calls linkat, which alone follows the link to a file without a name.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(_DESCRIPTORS / str(descriptor), path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file or folder; False if another one has it or the system has no such locks."""
    if os.name != "posix":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
