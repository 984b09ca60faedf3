"""Installed distributions: names, versions and files, as ``importlib.metadata`` finds them.

That module imports parsers of mail and archives with all that they need, which takes longer than many a session. So the folders
on ``sys.path`` are read here, and it is asked about the rest only: archives and eggs, and finders that a program has added.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .data_classes import dataclass

__all__ = ["Distribution", "distributions", "version_of"]

_SUFFIXES = (".dist-info", ".egg-info")
_METADATA_FILES = ("METADATA", "PKG-INFO", "")


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """An installed distribution."""

    key: str
    """Its name, made the same for all ways to write it."""
    read_text: Callable[[str], str | None]
    """Content of a file about the distribution; None if there is none. Raises OSError and UnicodeError."""
    root: Path | None = None
    """Folder that the paths in its ``RECORD`` begin at; None if it is not in a folder."""

    @property
    def name(self) -> str:
        """Its name as it writes it; empty if it does not say."""
        return self._field("name")

    @property
    def version(self) -> str:
        """Its version; empty if it does not say."""
        return self._field("version")

    def _field(self, field: str) -> str:
        texts = map(self.read_text, _METADATA_FILES)
        header = next((text for text in texts if text), "").partition("\n\n")[0]
        rows = (line.partition(":") for line in header.splitlines())
        return next((value.strip() for name, _, value in rows if name.lower() == field), "")

    def files(self) -> Iterator[Path]:
        """Installed files, by the distribution's own list."""
        rows = (self.read_text("RECORD") or "").splitlines() if self.root is not None else []
        return (Path(self.root or "", row.rsplit(",", 2)[0].strip('"')) for row in rows)


def distributions(name: str = "") -> Iterator[Distribution]:
    """Installed distributions, in the order of ``sys.path``. One may be there several times; Python imports the first.

    Args:
        name: of the only one wanted; empty for all.
    """
    wanted = _key(name)
    archives = []
    for folder in sys.path:
        if folder.endswith(".egg") or Path(folder).is_file():
            archives.append(folder)
            continue
        for key, path in _metadata_in(folder):
            if key == wanted or not wanted:
                yield Distribution(key, partial(_read, path), Path(folder))
    if archives or any(map(_finds_distributions, sys.meta_path)):
        yield from (each for each in _from_elsewhere(archives) if each.key == wanted or not wanted)


def _metadata_in(folder: str) -> list[tuple[str, str]]:
    """(key, path) of the metadata of the distributions in a folder."""
    try:
        changed = Path(folder).stat().st_mtime_ns
        known = _known.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        read = time.time_ns()
        with os.scandir(folder or ".") as entries:
            found = [(_key(_stem(entry.name)), entry.path) for entry in entries if entry.name.endswith(_SUFFIXES)]
    except OSError:  # sys.path may name what is not there
        return []
    if read - changed > _SETTLED_NS:
        _known[folder] = (changed, found)
    return found


_SETTLED_NS = 10**9
"""A folder that was changed less long before it was read may change again and keep its time."""
_known: dict[str, tuple[int, list[tuple[str, str]]]] = {}
"""Folder → when it was changed last, and what was in it then."""


def _stem(name: str) -> str:
    return name.rpartition(".")[0].partition("-")[0]


def version_of(name: str) -> str:
    """Version of a distribution; empty if it is not installed."""
    found = next(distributions(name), None)
    return "" if found is None else found.version


def _read(folder: str, name: str) -> str | None:
    try:
        path = os.path.join(folder, name) if name else folder  # noqa: PTH118 - a Path for each distribution takes as long again
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return None


def _key(name: str) -> str:
    return "_".join(part for part in name.lower().replace("-", "_").replace(".", "_").split("_") if part)


def _finds_distributions(finder: Any) -> bool:
    """Whether a finder beside Python's own knows of distributions."""
    home = getattr(finder, "__module__", "")
    return hasattr(finder, "find_distributions") and home != "_frozen_importlib_external"


def _from_elsewhere(archives: Iterable[str]) -> Iterator[Distribution]:
    import importlib.metadata

    context = importlib.metadata.DistributionFinder.Context
    for finder in sys.meta_path:
        if _finds_distributions(finder):
            yield from map(_wrapped, finder.find_distributions(context()))  # type: ignore[attr-defined]
    for archive in archives:
        yield from map(_wrapped, importlib.metadata.distributions(path=[archive]))


def _wrapped(found: Any) -> Distribution:
    made = Distribution("", found.read_text)
    return Distribution(_key(made.name), found.read_text)
