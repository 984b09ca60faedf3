"""The operator families: which module declares which operator, so that a module is imported when an operator needs it.

The index is data, written by ``tools/generate_opset_index.py``. Importing every family takes longer than loading a model.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path

__all__ = ["declared_operators", "load", "load_operator"]


@functools.cache
def _index() -> dict[tuple[str, str], str]:
    """(domain, op_type) → modules that declare it, then ``host`` if all its declarations are for the host only."""
    text = (Path(__file__).parent / "data" / "index.txt").read_text(encoding="utf-8")
    rows = (line.split("\t", 2) for line in text.splitlines())
    return {(domain, op_type): rest for domain, op_type, rest in rows}


def declared_operators(*, on_host: bool) -> list[tuple[str, str]]:
    """(domain, op_type) of every operator of the set; without those that only make sense on the host unless ``on_host``."""
    return [key for key, row in _index().items() if on_host or not row.endswith("\thost")]


@functools.cache
def load_operator(domain: str, op_type: str) -> None:
    """Import the modules that declare an operator."""
    for module in _index()[domain, op_type].partition("\t")[0].split(","):
        importlib.import_module(f"{__package__}.{module}")


@functools.cache
def load() -> None:
    """Import every family."""
    for domain, op_type in _index():
        load_operator(domain, op_type)
