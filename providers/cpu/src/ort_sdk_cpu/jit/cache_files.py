"""Files of compiled code: found in any folder that may be used, written to the first that takes them.

Nothing here raises what the system refuses: what cannot be read is made anew, what cannot be written is not kept, and the log
has a line about it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ort_sdk.api.file_trust import file_mode, open_trusted_file

from . import cache_folder
from .cache_folder import tell_unkept
from .digests import DIGEST_BYTES, digest

__all__ = ["is_file_kept", "new_path", "open_kept", "read_kept", "write_kept", "write_whole"]

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def is_file_kept(name: str) -> bool:
    """Whether a folder has a file; nothing is said of what is in it."""
    for folder in cache_folder.kernel_folders().readable:
        with contextlib.suppress(OSError):
            if (folder / name).is_file():
                return True
    return False


def new_path(name: str) -> Path | None:
    """Where a file of this name would be written; None if it would not be."""
    folder = cache_folder.kernel_folders().writable
    return None if folder is None else folder / name


def open_kept(folder: Path, name: str) -> int | None:
    """Descriptor of a file that may be used; None if there is none."""
    try:
        return open_trusted_file(folder, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        tell_unkept(f"the file {folder / name}", error)
        return None


def read_kept(name: str) -> bytes | None:
    """What ``write_kept`` kept in a file; None if there is none that may be used, or a damaged one."""
    for folder in cache_folder.kernel_folders().readable:
        descriptor = open_kept(folder, name)
        if descriptor is None:
            continue
        try:
            with os.fdopen(descriptor, "rb") as file:
                content = memoryview(file.read())
        except OSError as error:
            tell_unkept(f"the file {folder / name}", error)
            continue
        if digest(name.encode(), content[DIGEST_BYTES:]) == content[:DIGEST_BYTES]:
            return bytes(content[DIGEST_BYTES:])
    return None


def write_kept(name: str, content: bytes) -> bool:
    """Keep something in a file, with its digest; False if it cannot be kept."""
    return write_whole(name, digest(name.encode(), content) + content)


def write_whole(name: str, content: bytes) -> bool:
    """Write a file, which gets its name when it is complete; False if it cannot be written, and then nothing of it stays."""
    path = new_path(name)
    if path is None:
        return False
    temporary = path.with_name(f".{name}.{os.urandom(8).hex()}.tmp")
    try:
        try:
            _write(temporary, content)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        tell_unkept(f"the file {path}", error)
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    mode = file_mode(path.parent)
    with os.fdopen(os.open(path, _NEW_FILE, mode), "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), mode)  # whatever the user's mask takes away
        file.write(content)
