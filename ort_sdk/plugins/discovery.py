"""Entry points of the installed distributions, read so that one broken distribution never hides another."""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.distributions import Distribution, distributions

from .state import ProviderRecord, ProviderState

__all__ = ["Discovered", "EntryPoint", "read_entry_points"]

logger = logging.getLogger("ort_sdk.plugins")


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """What a distribution offers under a name."""

    name: str
    value: str
    """``module``, or ``module:attribute.of.it``; extras in brackets may follow, which mean nothing any more."""

    def load(self) -> Any:
        """Import the module and give it or its attribute.

        Raises:
            ValueError: the value is neither.
            Exception: whatever the import raises.
        """
        module, _, attribute = (part.strip() for part in self.value.partition("[")[0].partition(":"))
        names = [*module.split("."), *(attribute.split(".") if attribute else ())]
        if not all(name.isidentifier() for name in names):
            raise ValueError(f"entry point '{self.name}' is {self.value!r}; it must be 'module' or 'module:attribute'")
        return reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))


@dataclass(frozen=True, slots=True)
class Discovered:
    """An entry point with its record; no entry point if its distribution's metadata cannot be read."""

    record: ProviderRecord
    entry_point: EntryPoint | None = None


def read_entry_points(*groups: str) -> list[list[Discovered]]:
    """Entry points of some groups, each sorted by name, then by distribution. Imports nothing of theirs.

    ``importlib.metadata.entry_points`` fails as a whole on one malformed file, so each distribution is read on its own.
    """
    texts = _distributions_with(groups)
    found = ([row for each, text in texts if group in text for row in _read_distribution(each, text, group)] for group in groups)
    return [sorted(rows, key=lambda row: (row.record.entry_point_name, row.record.distribution)) for rows in found]


def _distributions_with(groups: Sequence[str]) -> list[tuple[Distribution, str]]:
    """Distributions whose entry-point file mentions one of some groups, most do not, with its text.

    The first of several copies on ``sys.path`` counts, which is the one that Python imports.
    """
    texts: dict[str, tuple[Distribution, str]] = {}
    for each in distributions():
        try:
            texts.setdefault(each.key, (each, each.read_text("entry_points.txt") or ""))
        except (OSError, UnicodeError) as error:
            logger.info("skipped a distribution whose entry_points.txt cannot be read: %s", error)
    return [(each, text) for each, text in texts.values() if any(group in text for group in groups) and each.name]


def _read_distribution(distribution: Distribution, text: str, group: str) -> Iterator[Discovered]:
    name = distribution.name
    record = ProviderRecord(name, distribution=name, version=distribution.version)
    try:
        entry_points = dict.fromkeys(_entry_points(text, group))
    except ValueError as error:
        reason = f"entry_points.txt of {record.source()} cannot be read: {error}"
        yield Discovered(record.moved_to(ProviderState.REFUSED, reason, f"Reinstall it: pip install --force-reinstall {name}"))
        return
    for entry_point in entry_points:
        yield Discovered(dataclasses.replace(record, entry_point_name=entry_point.name), entry_point)


def _entry_points(text: str, group: str) -> Iterator[EntryPoint]:
    """Entry points of one group in the text of a file."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif line and section == group and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"the line {line!r} in group {group} is not 'name = value'")
            yield EntryPoint(name.strip(), value.strip())
