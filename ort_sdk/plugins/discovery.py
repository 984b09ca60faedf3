"""Entry points of the installed distributions, read so that one broken distribution never hides another."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import re
from collections.abc import Iterator

from ort_sdk.api.data_classes import dataclass

from .state import ProviderRecord, ProviderState

__all__ = ["Discovered", "read_entry_points"]

logger = logging.getLogger("ort_sdk.plugins")


@dataclass(frozen=True, slots=True)
class Discovered:
    """An entry point with its record; no entry point if its distribution's metadata cannot be read."""

    record: ProviderRecord
    entry_point: importlib.metadata.EntryPoint | None = None


def read_entry_points(group: str) -> list[Discovered]:
    """Entry points of a group, sorted by name, then by distribution. Imports nothing of theirs.

    ``importlib.metadata.entry_points`` fails as a whole on one malformed file, so each distribution is read on its own.
    """
    found = [row for name in _distributions_with(group) for row in _read_distribution(name, group)]
    return sorted(found, key=lambda row: (row.record.entry_point_name, row.record.distribution))


def _distributions_with(group: str) -> list[str]:
    """Names of distributions whose entry-point file mentions the group: a text search, since most mention nothing."""
    names: dict[str, None] = {}
    for distribution in importlib.metadata.distributions():
        try:
            mentioned = group in (distribution.read_text("entry_points.txt") or "")
            name = _field(distribution, "Name") if mentioned else ""
        except (OSError, UnicodeError) as error:
            logger.info("skipped a distribution whose entry_points.txt cannot be read: %s", error)
            continue
        if name:
            names.setdefault(name)
    return list(names)


def _field(distribution: importlib.metadata.Distribution, field: str) -> str:
    """A field of a distribution's metadata; empty if it has none.

    ``Distribution.metadata`` parses the text as an email, with all of the standard library's modules for that.
    """
    texts = (distribution.read_text(name) for name in ("METADATA", "PKG-INFO", ""))
    header = next((text for text in texts if text), "").partition("\n\n")[0]
    found = re.search(rf"^{field}:(.*)$", header, re.IGNORECASE | re.MULTILINE)
    return "" if found is None else found[1].strip()


def _read_distribution(name: str, group: str) -> Iterator[Discovered]:
    # By name, since the first of several copies on sys.path is the one that Python imports.
    distribution = importlib.metadata.distribution(name)
    record = ProviderRecord(name, distribution=name, version=_field(distribution, "Version"))
    try:
        entry_points = dict.fromkeys(distribution.entry_points.select(group=group))
    except Exception as error:  # noqa: BLE001 - other people's metadata: any fault is recorded and the next one is read
        reason = f"entry_points.txt of {record.source()} cannot be read: {type(error).__name__}: {error}"
        yield Discovered(record.moved_to(ProviderState.REFUSED, reason, f"Reinstall it: pip install --force-reinstall {name}"))
        return
    for entry_point in entry_points:
        yield Discovered(dataclasses.replace(record, entry_point_name=entry_point.name), entry_point)
