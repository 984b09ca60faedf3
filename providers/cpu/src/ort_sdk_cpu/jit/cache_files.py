"""Files of compiled code: read from any trusted cache folder, written to the first that is writable.

None raises ``OSError``: a file that cannot be read is compiled anew, one that cannot be written is not cached, and the failure
is logged.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ort_sdk.api.file_trust import open_trusted_file
from ort_sdk.api.sealed_files import replace_file
from ort_sdk_cpu.platform.digests import sealed, unsealed

from . import cache_folder
from .cache_folder import log_cache_failure

__all__ = ["is_file_cached", "open_cached", "read_cached", "writable_path", "write_atomically", "write_cached"]


def is_file_cached(name: str) -> bool:
    """Whether a cache folder has a file of this name; its content is not checked."""
    for folder in cache_folder.kernel_folders().readable:
        with contextlib.suppress(OSError):
            if (folder / name).is_file():
                return True
    return False


def writable_path(name: str) -> Path | None:
    """Path at which a file of this name would be written; None if no folder is writable."""
    folder = cache_folder.kernel_folders().writable
    return None if folder is None else folder / name


def open_cached(folder: Path, name: str) -> int | None:
    """Open a trusted file of a cache folder; returns its descriptor, None if there is none."""
    try:
        return open_trusted_file(folder, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        log_cache_failure(f"the file {folder / name}", error)
        return None


def read_cached(name: str) -> bytes | None:
    """Content that ``write_cached`` wrote to a file; None if there is no trusted file, or its digest is wrong."""
    for folder in cache_folder.kernel_folders().readable:
        descriptor = open_cached(folder, name)
        if descriptor is None:
            continue
        try:
            with os.fdopen(descriptor, "rb") as file:
                content = memoryview(file.read())
        except OSError as error:
            log_cache_failure(f"the file {folder / name}", error)
            continue
        found = unsealed(name, content)
        if found is not None:
            return found
    return None


def write_cached(name: str, content: bytes) -> bool:
    """Write a content with its digest to a cache file; False if that fails."""
    return write_atomically(name, sealed(name, content))


def write_atomically(name: str, content: bytes) -> bool:
    """Write a cache file atomically: it gets its name when it is complete. False if that fails, and then no part of it stays."""
    path = writable_path(name)
    if path is None:
        return False
    try:
        replace_file(path, lambda file: file.write(content))
    except OSError as error:
        log_cache_failure(f"the file {path}", error)
        return False
    return True
