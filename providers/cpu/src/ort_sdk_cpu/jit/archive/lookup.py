"""Looks for compiled code in the archive that the installed package brought."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from ort_sdk_cpu.jit.cache_folder import log_once
from ort_sdk_cpu.jit.elf.loader import map_part
from ort_sdk_cpu.platform.archives import Archive, ArchiveError, Entry, archives, candidates
from ort_sdk_cpu.platform.digests import unsealed

__all__ = ["archived_content", "is_archived", "map_archived"]


def is_archived(name: str) -> bool:
    """Whether an archive has an entry of this name; its content is not checked."""
    return any(True for _ in _found(name))


def map_archived(name: str) -> int | None:
    """Map an image of an archive; returns the address of its function, None if none has it undamaged.

    Args:
        name: of the image's file.

    Raises:
        LinkError: no library has a function that the image calls.
    """
    for archive, entry in _found(name):
        # The system may not allow executable mappings; LLVM may still be able to make code.
        with contextlib.suppress(OSError), _opened(archive) as file:
            found = None if file is None else map_part(file, entry.offset, entry.size, name)
            if found is not None:
                return found
            _log_damage(archive, name)
    return None


def archived_content(name: str) -> bytes | None:
    """Content of an entry that is no image; None if no archive has it undamaged."""
    for archive, entry in _found(name):
        with contextlib.suppress(OSError), _opened(archive) as file:
            content = b"" if file is None else os.pread(file, entry.size, entry.offset)
            found = unsealed(name, content)
            if found is not None:
                return found
            _log_damage(archive, name)
    return None


def _found(name: str) -> Iterator[tuple[Archive, Entry]]:
    _log_unused()
    for archive in archives():
        try:
            entry = archive.find(name)
        except ArchiveError as error:
            log_once(str(archive.path), f"an archive of compiled CPU kernels cannot be used: {error.text}")
            continue
        if entry is not None:
            yield archive, entry


@contextlib.contextmanager
def _opened(archive: Archive) -> Iterator[int | None]:
    """A descriptor of an archive; None if its file was changed.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        file = archive.opened()
    except ArchiveError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def _log_damage(archive: Archive, name: str) -> None:
    log_once(str(archive.path), f"{archive.path} is damaged, or was changed: the compiled CPU kernel {name} in it is not used")


@functools.cache
def _log_unused() -> None:
    """Log, once per process, which archives are there and cannot be used."""
    for path, _, reason in candidates():
        if reason:
            log_once(str(path), f"the archive {path} of compiled CPU kernels cannot be used: {reason}")
