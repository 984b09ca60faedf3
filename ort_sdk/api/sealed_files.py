"""Files that are made once and read by many processes: whole before they get their name, and with a digest of what is in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .file_trust import file_mode

try:
    # The extension module behind hashlib: hashlib itself loads OpenSSL, which takes more time than loading a kernel.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["DIGEST_BYTES", "digest", "replace_file", "sealed", "unsealed"]

DIGEST_BYTES = 32
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def digest(*parts: bytes | memoryview) -> bytes:
    """Digest of concatenated parts (BLAKE2b, 32 bytes)."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        found.update(part)
    return found.digest()


def sealed(name: str, content: bytes) -> bytes:
    """Content of a file with a digest over its name and content before it."""
    return digest(name.encode(), content) + content


def unsealed(name: str, file: bytes | memoryview) -> bytes | None:
    """The content that ``sealed`` was given; None if the file is damaged, or of another name."""
    content = memoryview(file)[DIGEST_BYTES:]
    return bytes(content) if digest(name.encode(), content) == file[:DIGEST_BYTES] else None


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file that gets its name when it is complete, and that who may read its folder may read.

    Args:
        path: of the file; its folder must be there.
        write: writes the content.

    Raises:
        OSError: it cannot be written; then no part of it stays.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    mode = file_mode(path.parent)
    try:
        with os.fdopen(os.open(temporary, _NEW_FILE, mode), "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)  # the umask may have removed permissions
            write(file)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
