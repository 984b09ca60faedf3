"""Files kept for one device and its driver: compiled programs, and what was found out about the driver.

Nothing depends on them: a file that is missing, damaged, or may be written by others counts as none, and what cannot be written
is made again by the next process. Only folders and files that nobody else can write are used (``ort_sdk.api.file_trust``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ort_sdk.api.cache_folder import CACHE_VARIABLE, cache_subfolder, user_cache
from ort_sdk.api.file_trust import make_private_folder, open_trusted_file, require_trusted_folder
from ort_sdk.api.sealed_files import digest, replace_file, sealed, unsealed

__all__ = ["DriverStore", "opened_store"]

_logger = logging.getLogger("ort_sdk.device")


class DriverStore:
    """Contents by kind and key. Any number of processes may use one folder at once.

    Args:
        folder: of the files, trusted; None to keep nothing.
        driver: all that says which device and driver it is, and in which version.
    """

    def __init__(self, folder: Path | None, driver: Mapping[str, str]) -> None:
        self.folder = folder
        self._driver = repr(sorted(driver.items())).encode()
        self._has_warned = False

    def read(self, kind: str, *key: str | bytes) -> bytes | None:
        """What was written for a key; None if there is nothing that can be trusted.

        Args:
            kind: a word that files of this kind are named by.
            key: all that decides the content, besides the driver.
        """
        if self.folder is None:
            return None
        name = self._name(kind, key)
        try:
            with os.fdopen(open_trusted_file(self.folder, name), "rb") as file:
                content = unsealed(name, file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(name, "read", error.strerror or error)
            return None
        if content is None:
            self._warn(name, "used", "it is damaged")
        return content

    def write(self, content: bytes, kind: str, *key: str | bytes) -> bool:
        """Keep a content for a key; whether that worked."""
        if self.folder is None:
            return False
        name = self._name(kind, key)
        try:
            replace_file(self.folder / name, lambda file: file.write(sealed(name, content)))
        except OSError as error:
            self._warn(name, "written", error.strerror or error)
            return False
        return True

    def _name(self, kind: str, key: tuple[str | bytes, ...]) -> str:
        parts = [part.encode() if isinstance(part, str) else part for part in key]
        lengths = repr([len(part) for part in parts]).encode()
        return f"{kind}-{digest(self._driver, lengths, *parts).hex()[:40]}.bin"

    def _warn(self, name: str, what: str, reason: object) -> None:
        """Log the first file that cannot be used; of a read-only folder, the others cannot be either."""
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        _logger.log(level, "'%s' in '%s' cannot be %s: %s; it is made anew", name, self.folder, what, reason)


def opened_store(name: str, driver: Mapping[str, str]) -> DriverStore:
    """The files of a device and driver: in ``ORT_SDK_CACHE_DIR``, else in the user's cache folder.

    Args:
        name: of the provider, a word.
        driver: all that says which device and driver it is, and in which version.
    """
    folder = cache_subfolder(name)
    if folder is None:
        parent = user_cache()
        folder = None if parent is None else parent / f"ort_sdk_{name}"
    if folder is not None:
        try:
            make_private_folder(folder)
            require_trusted_folder(folder)
        except OSError as error:
            _logger.warning(
                "compiled kernels are not kept: folder '%s' cannot be used: %s; name another one in %s",
                folder,
                error.strerror or error,
                CACHE_VARIABLE,
            )
            folder = None
    return DriverStore(folder, driver)
