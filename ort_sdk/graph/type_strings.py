"""Type strings: which arguments of a node a kernel's type constraint speaks of, and the names of operators in such tables."""

from __future__ import annotations

import functools
from typing import Literal

from ort_sdk.api import Fail, OperatorSchema, find_schema
from ort_sdk.api.data_classes import NamedTuple

__all__ = ["Argument", "OpIdentifier", "TypeStrings", "op_id", "resolve_type_strings", "type_strings_of"]

Argument = tuple[Literal["input", "output"], int]
"""A formal parameter: kind and index."""

TypeStrings = dict[str, tuple[Argument, ...]]
"""Constraint name → formal parameters it covers."""

_PARTS = 3
_MOST_DIGITS = 10


class OpIdentifier(NamedTuple):
    """One version of an operator (ORT's ``OpIdentifier``); as text ``domain:op_type:since_version``, ``:Relu:14``."""

    domain: str
    op_type: str
    since_version: int

    def __str__(self) -> str:
        return op_id(*self)

    @classmethod
    def parse(cls, text: str | None) -> OpIdentifier:
        """The operator that a text names.

        Raises:
            Fail: the text has not that form.
        """
        domain, op_type, version = parts if len(parts := (text or "").split(":")) == _PARTS else ("", "", "")
        if not op_type or not (version.isascii() and version.isdecimal() and len(version) <= _MOST_DIGITS):
            raise Fail(f"Invalid OpIdentifier string: {text}; it takes 'domain:op_type:since_version'.")
        return cls(domain, op_type, int(version))


def op_id(domain: str, op_type: str, since_version: int) -> str:
    """ORT's text for one version of an operator: ``:Relu:14``."""
    return f"{domain}:{op_type}:{since_version}"


@functools.cache
def resolve_type_strings(domain: str, op_type: str, since_version: int) -> TypeStrings | None:
    """Type strings of an operator by its schema; None if exactly that version has none."""
    schema = find_schema(op_type, since_version, domain)
    return None if schema is None or schema.since_version != since_version else type_strings_of(schema)


def type_strings_of(schema: OperatorSchema) -> TypeStrings:
    """Constraint name → formal parameters it covers, inputs first.

    A formal parameter with a fixed type is found under its own name.
    """
    table: dict[str, list[Argument]] = {}
    for kind, formals in (("input", schema.inputs), ("output", schema.outputs)):
        for index, formal in enumerate(formals):
            name = formal.type_str if formal.type_str in schema.type_constraints else formal.name
            table.setdefault(name, []).append((kind, index))  # type: ignore[arg-type]
    return {name: tuple(arguments) for name, arguments in table.items()}
