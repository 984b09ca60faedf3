"""Which folders and files may decide what a process computes or runs: those that only their owner can write.

A folder or file is trusted if it belongs to the user of the process or to root, and neither its group nor others may write it.
Who can write a folder can replace a file by another, so that a file is used only if its folder is trusted, too. Both are
looked at as they were opened, following no link: what is checked is what is read. Systems without owners and modes of files
(Windows) separate users by the folders' own access lists, which are not looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["file_mode", "make_private_folder", "make_subfolder", "open_trusted_file", "require_trusted_folder"]

_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_WRITE_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ_OF_OTHERS = stat.S_IRGRP | stat.S_IROTH
_ENTRY_OF_OTHERS = _READ_OF_OTHERS | stat.S_IXGRP | stat.S_IXOTH
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FILE_FLAGS |= getattr(os, "O_NONBLOCK", 0)  # or opening a pipe would wait for who writes it
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for the user alone (mode 0700); one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or something else is there.
    """
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        make_private_folder(folder.parent)
    folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)


def make_subfolder(parent: Path, name: str) -> Path:
    """Make a folder in one that is there, if it is missing: as readable as that one if root makes it, else for the user alone.

    All users trust what root wrote, so that root's files may serve them all; files of other users serve nobody else.

    Raises:
        OSError: it cannot be made, or something else is there.
    """
    mode = _PRIVATE_FOLDER
    if _HAS_OWNERS and os.geteuid() == 0:
        mode |= parent.stat().st_mode & _ENTRY_OF_OTHERS
    folder = parent / name
    folder.mkdir(mode=mode, exist_ok=True)
    return folder


def require_trusted_folder(folder: Path) -> None:
    """Check that nobody else decides what is in a folder.

    Raises:
        PermissionError: somebody else may; the text says why, and what to do.
        OSError: it cannot be opened, is no folder, or a link.
    """
    if _HAS_OWNERS:
        with _opened_folder(folder):
            pass


def open_trusted_file(folder: Path, name: str) -> int:
    """Descriptor of a file that only its owner can write or replace, for reading.

    Raises:
        FileNotFoundError: there is no such file.
        PermissionError: somebody else may write it or its folder, or it is no regular file.
        OSError: it cannot be opened.
    """
    if not _HAS_OWNERS:
        return os.open(folder / name, _FILE_FLAGS)
    with _opened_folder(folder) as directory:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "it is no regular file", str(folder / name))
        _require_trust(status, folder / name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def file_mode(folder: Path) -> int:
    """Mode of a file made in a folder: its owner writes it, and who may read the folder may read it.

    Raises:
        OSError: there is no such folder.
    """
    return _PRIVATE_FILE | (folder.stat().st_mode & _READ_OF_OTHERS)


@contextlib.contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    directory = os.open(folder, _FOLDER_FLAGS)
    try:
        _require_trust(os.fstat(directory), folder)
        yield directory
    finally:
        os.close(directory)


def _require_trust(status: os.stat_result, path: Path) -> None:
    owners = {0, os.geteuid()}
    if status.st_uid not in owners:
        reason = f"it belongs to user {status.st_uid}, neither to user {os.geteuid()}, who runs this process, nor to root"
    elif status.st_mode & _WRITE_OF_OTHERS:
        reason = f"its mode {stat.S_IMODE(status.st_mode):04o} lets others write it; take that from them with chmod go-w"
    else:
        return
    raise PermissionError(errno.EPERM, reason, str(path))
