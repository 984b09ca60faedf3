"""Digests of sources that an archive recorded when it was made: those of an unchanged package need not be read again.

Reading and hashing what a small model's kernels are made from takes longer than its first run; looking at sizes and times of the
files takes a twentieth of that.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from ort_sdk_cpu.platform.archives import archives

from . import sources
from .sources import compiled_modules, files_of_compiler, sources_digest, sources_of

__all__ = ["module_digest", "recorded"]

_PER_MODULE, _FILES = "digest:", "files"
INSTALLATION_NS = 60 * 10**9
"""Time within which all files of a package are written, where no installer recorded that it had written them."""


def recorded() -> dict[str, str]:
    """What an archive says of the sources of this package: their digest, that of each module, and sizes of files."""
    modules = compiled_modules()
    paths = sorted({*sources_of(*modules), *files_of_compiler()})
    sizes = " ".join(f"{path}:{(sources.PACKAGE / path).stat().st_size}" for path in paths)
    return {
        "sources": sources_digest(*modules),
        _FILES: sizes,
        **{f"{_PER_MODULE}{module}": sources_digest(module) for module in modules},
    }


def module_digest(module: str) -> str:
    """Digest of all sources that a module's code depends on: as recorded, where the package is as it was installed.

    Args:
        module: name below the package.
    """
    return next(_recorded(module), None) or sources_digest(module)


def _recorded(module: str) -> Iterator[str]:
    for archive in archives():
        digest, files = archive.description.get(f"{_PER_MODULE}{module}"), archive.description.get(_FILES)
        if digest and files and _are_as_installed(files, _installed_ns() or archive.identity.modified + INSTALLATION_NS):
            yield digest


@functools.cache
def _installed_ns() -> int:
    """When the package was installed: installers write the list of its files last. 0 where there is no such list."""
    try:
        with os.scandir(sources.PACKAGE.parent) as entries:
            folders = [each.path for each in entries if each.name.startswith("ort_sdk_cpu-") and each.name.endswith(".dist-info")]
        return min((Path(folder) / "RECORD").stat().st_mtime_ns for folder in folders)
    except (OSError, ValueError):
        return 0


@functools.cache
def _are_as_installed(files: str, latest_ns: int) -> bool:
    """Whether sources have the sizes that were recorded, and were modified no later than the package was installed."""
    folder = str(sources.PACKAGE)
    try:
        for file in files.split():
            path, _, size = file.rpartition(":")
            status = os.stat(f"{folder}/{path}")  # noqa: PTH116 - there are 200 of them, and a Path takes as long as the call
            if status.st_size != int(size) or status.st_mtime_ns > latest_ns:
                return False
    except (OSError, ValueError):
        return False
    return True
