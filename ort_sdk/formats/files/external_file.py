"""External data files: which paths are allowed, and opening them so that what was checked is what is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ort_sdk.api import Fail

from .byte_source import ByteSource, map_descriptor, wrap_buffer

__all__ = ["ExternalFiles", "MissingExternalFile", "normal_location"]

_MEMORY_MARKERS = ("*/_ORT_MEM_ADDR_/*", "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*")
_MAX_LOCATION_LENGTH = 4096
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A named pipe would block the opening itself.
_FILE_FLAGS = _READ_FLAGS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER_FLAGS = _READ_FLAGS | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def normal_location(location: str) -> str:
    """A location without leading ``./``, as files given in memory are looked up."""
    while location.startswith(("./", ".\\")):
        location = location[1:].lstrip("/\\")
    return location


class MissingExternalFile(Fail):
    """There is no file at an allowed location."""


class ExternalFiles:
    """The external data files of one model, each opened once.

    Args:
        model_path: file of the model; None if it came as bytes.
        folder: folder of the data instead of the model's own (the current one for bytes).
        in_memory_files: location → buffer, or path of any file, to use instead of a file; locations found here need not exist
            as files, and are not restricted to the folder.
    """

    def __init__(self, model_path: Path | None, folder: Path | None, in_memory_files: Mapping[str, Any] | None = None) -> None:
        self._model_path = model_path if folder is None else None
        self._folder = folder or (Path() if model_path is None else model_path.parent)
        self._in_memory = {normal_location(name): buffer for name, buffer in (in_memory_files or {}).items()}
        self._opened: dict[str, tuple[ByteSource, Path | None]] = {}

    def open(self, location: str, owner: str) -> tuple[ByteSource, Path | None]:
        """Source for a location, and the file it is (None for a buffer).

        Args:
            location: as the model says it.
            owner: the tensor, for messages.

        Raises:
            MissingExternalFile: there is nothing at the location.
            Fail: the path is not allowed, no regular file, or cannot be opened.
        """
        opened = self._opened.get(location)
        if opened is None:
            opened = self._open(location, owner)
            self._opened[location] = opened
        return opened

    def _open(self, location: str, owner: str) -> tuple[ByteSource, Path | None]:
        if location in _MEMORY_MARKERS:
            raise _refused(owner, f"the location {location!r} stands for a memory address, which a model must not hold")
        given = self._in_memory.get(normal_location(location))
        if isinstance(given, str | os.PathLike):
            return _open_given(Path(given), owner)
        if given is not None:
            return wrap_buffer(given), None
        _check_text(location, owner)
        folder, path = self._resolve(location, owner)
        try:
            descriptor = _open_beneath(folder, path)
        except FileNotFoundError:
            raise MissingExternalFile(_reason(owner, f"External data path does not exist: '{path}'")) from None
        except OSError as error:
            raise _refused(owner, f"'{path}' cannot be opened: {error.strerror}") from error
        try:
            return map_descriptor(descriptor, f"'{path}', external data of {owner},"), path
        finally:
            os.close(descriptor)

    def _resolve(self, location: str, owner: str) -> tuple[Path, Path]:
        """Allowed folder and file in it, both without symbolic links."""
        path = Path(os.path.realpath(self._folder / location))
        folders = [Path(os.path.realpath(self._folder))]
        if self._model_path is not None and self._model_path.is_symlink():
            # Hugging Face's cache: model and data are links to files in one folder elsewhere.
            folders.append(Path(os.path.realpath(self._model_path)).parent)
        for folder in folders:
            if path != folder and path.is_relative_to(folder):
                return folder, path
        raise _refused(
            owner,
            f"External data path escapes {'working' if self._model_path is None else 'model'} directory. External data path: "
            f"'{location}' resolved path: '{path}' allowed directory: {' or '.join(repr(str(folder)) for folder in folders)}",
        )


def _check_text(location: str, owner: str) -> None:
    if "\0" in location or len(location) > _MAX_LOCATION_LENGTH:
        raise _refused(owner, f"the location {location[:100]!r} ({len(location)} characters) cannot be a path")
    windows = PureWindowsPath(location)
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        raise _refused(owner, f"Absolute path not allowed for external data location: {location!r}")


def _open_given(path: Path, owner: str) -> tuple[ByteSource, Path]:
    """Map a file that the caller, not the model, named: it may be anywhere."""
    try:
        descriptor = os.open(path, _READ_FLAGS | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _refused(owner, f"'{path}', given instead, cannot be opened: {error.strerror}") from error
    try:
        return map_descriptor(descriptor, f"'{path}', given for the external data of {owner},"), path
    finally:
        os.close(descriptor)


def _open_beneath(folder: Path, path: Path) -> int:
    """Open a resolved file for reading, component by component, so that no link that appears meanwhile is followed."""
    if os.open not in os.supports_dir_fd:
        return _open_and_recheck(path)
    *folders, name = path.relative_to(folder).parts
    current = os.open(folder, _FOLDER_FLAGS)
    try:
        for component in folders:
            inner = os.open(component, _FOLDER_FLAGS, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(name, _FILE_FLAGS, dir_fd=current)
    finally:
        os.close(current)


def _open_and_recheck(path: Path) -> int:
    """For systems that cannot open relative to a folder: open, then check that the path still leads to what was opened."""
    descriptor = os.open(path, _FILE_FLAGS)
    if os.path.realpath(path) != str(path) or not os.path.samestat(os.fstat(descriptor), path.stat()):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "it was replaced while it was opened")
    return descriptor


def _refused(owner: str, reason: str) -> Fail:
    return Fail(_reason(owner, reason))


def _reason(owner: str, reason: str) -> str:
    return f"External data path validation failed for initializer: {owner}. Error: {reason}"
