"""Schemas of a session's operators: the table's, and those its providers declare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ort_sdk.api import OperatorSchema, find_schema, schema_versions

from .node import Node

__all__ = ["TABLE_SCHEMAS", "OperatorSchemas", "is_newer_than_table"]


class OperatorSchemas:
    """The schema table, completed by declarations.

    Args:
        declared: of operators or versions that the table lacks; of two for the same one, the first counts.
    """

    def __init__(self, declared: Iterable[OperatorSchema] = ()) -> None:
        self._declared: dict[tuple[str, str], dict[int, OperatorSchema]] = {}
        for schema in declared:
            self._declared.setdefault((schema.domain, schema.op_type), {}).setdefault(schema.since_version, schema)
        self.output_types: dict[tuple[Any, ...], Sequence[str | None]] = {}
        """What type inference has found: operator, version, number of outputs and types of inputs → types of outputs."""

    def find(self, op_type: str, opset_version: int, domain: str = "") -> OperatorSchema | None:
        """The schema in force at an opset version of its domain; None if there is none."""
        versions = self._declared.get((domain, op_type))
        if versions:
            newest = max((version for version in versions if version <= opset_version), default=0)
            if newest:
                return versions[newest]
        return find_schema(op_type, opset_version, domain)

    def of(self, node: Node) -> OperatorSchema | None:
        """Schema of exactly the version of its operator that a node is of; None if it is unknown."""
        schema = self.find(node.op_type, node.since_version, node.domain)
        return None if schema is None or schema.since_version != node.since_version else schema

    def versions(self, op_type: str, domain: str = "") -> tuple[int, ...]:
        """Since-versions of an operator, ascending; empty if it is unknown."""
        return (*schema_versions(op_type, domain), *sorted(self._declared.get((domain, op_type), ())))

    def declares(self, op_type: str, domain: str) -> bool:
        """Whether any version of an operator is declared."""
        return (domain, op_type) in self._declared


TABLE_SCHEMAS = OperatorSchemas()
"""The schema table alone."""


def is_newer_than_table(node: Node) -> bool:
    """Whether a node is of a later version than the table knows of its operator, so that no rule for it may be applied."""
    versions = schema_versions(node.op_type, node.domain)
    return bool(versions) and node.since_version > versions[-1]
