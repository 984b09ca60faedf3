"""Type-string resolution: which arguments of a node a kernel's type constraint speaks of (ORT's ``KernelTypeStrResolver``)."""

from __future__ import annotations

import functools
from typing import Literal

from ort_sdk.api import OperatorSchema, find_schema

__all__ = ["Argument", "TypeStrings", "op_id", "resolve_type_strings"]

Argument = tuple[Literal["input", "output"], int]
"""A formal parameter: kind and index."""

TypeStrings = dict[str, tuple[Argument, ...]]
"""Constraint name → formal parameters it covers."""


def op_id(domain: str, op_type: str, since_version: int) -> str:
    """ORT's text for one version of an operator: ``:Relu:14``."""
    return f"{domain}:{op_type}:{since_version}"


@functools.cache
def resolve_type_strings(domain: str, op_type: str, since_version: int) -> TypeStrings | None:
    """Constraint name → formal parameters it covers, inputs first; None if the operator has no schema.

    A formal parameter with a fixed type is found under its own name.
    """
    schema = find_schema(op_type, since_version, domain)
    return None if schema is None else _table(schema)


def _table(schema: OperatorSchema) -> TypeStrings:
    table: dict[str, list[Argument]] = {}
    for kind, formals in (("input", schema.inputs), ("output", schema.outputs)):
        for index, formal in enumerate(formals):
            name = formal.type_str if formal.type_str in schema.type_constraints else formal.name
            table.setdefault(name, []).append((kind, index))  # type: ignore[arg-type]
    return {name: tuple(arguments) for name, arguments in table.items()}
