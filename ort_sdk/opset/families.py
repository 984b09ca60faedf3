"""The operator families: which module declares which operator, so that a module is imported when an operator needs it.

The index is data, written by ``tools/generate_opset_index.py``. Importing every family takes longer than loading a model.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import cast

__all__ = ["DeclaredOperators", "load", "load_operator"]


@functools.cache
def _index() -> str:
    """A line for each operator: domain, op_type, modules that declare it, ``any``, or ``host`` if all that is for the host."""
    return "\n" + (Path(__file__).parent / "data" / "index.txt").read_text(encoding="utf-8")


def _row(domain: str, op_type: str) -> list[str]:
    """Fields of an operator's line behind its name; none if there is no such operator."""
    index, key = _index(), f"\n{domain}\t{op_type}\t"
    start = index.find(key) if key.count("\n") == 1 and key.count("\t") == 2 else -1
    return [] if start < 0 else index[start + len(key) : index.find("\n", start + len(key))].split("\t")


class DeclaredOperators(AbstractSet[tuple[str, str]]):
    """(domain, op_type) of every operator of the set, looked up in the index: as a set they would take a hundred kilobytes.

    Args:
        on_host: with those that only make sense on the host.
        exclude: op types that are left out.
    """

    def __init__(self, *, on_host: bool, exclude: Collection[str] = ()) -> None:
        self._on_host, self._exclude = on_host, frozenset(exclude)

    @classmethod
    def _from_iterable(cls, it: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:  # type: ignore[override]
        """What unions and intersections with other sets are: the base class asks for it."""
        return frozenset(it)

    def __contains__(self, operator: object) -> bool:
        domain, op_type = cast("tuple[str, str]", operator)
        return op_type not in self._exclude and self._has(_row(domain, op_type))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for line in _index().splitlines()[1:]:
            domain, op_type, *row = line.split("\t")
            if op_type not in self._exclude and self._has(row):
                yield domain, op_type

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _has(self, row: Sequence[str]) -> bool:
        return bool(row) and (self._on_host or row[-1] != "host")


@functools.cache
def load_operator(domain: str, op_type: str) -> None:
    """Import the modules that declare an operator."""
    for module in _row(domain, op_type)[0].split(","):
        importlib.import_module(f"{__package__}.{module}")


@functools.cache
def load() -> None:
    """Import every family."""
    for domain, op_type in DeclaredOperators(on_host=True):
        load_operator(domain, op_type)
