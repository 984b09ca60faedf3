"""What the runtime needs of operator schemas: formal parameters, type constraints and since-versions.

The table is data, generated from the onnx package's schemas (and, for ``com.microsoft``, from ONNX Runtime's) by
``tools/generate_operator_schemas.py``, so that no process needs the onnx package to match kernels.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import resources
from typing import Any

__all__ = [
    "FormalParameter",
    "OperatorSchema",
    "ParameterOption",
    "find_schema",
    "newest_opset",
    "operator_names",
    "schema_versions",
]


class ParameterOption(IntEnum):
    """How many arguments a formal parameter takes, with onnx's codes."""

    SINGLE = 0
    OPTIONAL = 1
    VARIADIC = 2


@dataclass(frozen=True, slots=True)
class FormalParameter:
    """One declared input or output of an operator."""

    name: str
    type_str: str
    """Name of a type constraint (``T``) or a type string (``tensor(int64)``)."""
    option: ParameterOption
    is_homogeneous: bool
    """For a variadic parameter: whether all its arguments have one type."""


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """One version of one operator."""

    op_type: str
    domain: str
    since_version: int
    inputs: tuple[FormalParameter, ...]
    outputs: tuple[FormalParameter, ...]
    type_constraints: Mapping[str, tuple[str, ...]]
    """Constraint name → type strings it allows."""
    attribute_types: Mapping[str, int]
    """Attribute → code of its type (``AttributeProto.AttributeType``)."""
    attribute_defaults: Mapping[str, Any]
    """Attributes that have a default in the specification."""
    required_attributes: tuple[str, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    is_deprecated: bool
    has_function: bool
    """Whether the specification defines the operator by a body of other operators."""

    def allowed_types(self, type_str: str) -> tuple[str, ...]:
        """Type strings allowed for a formal parameter's ``type_str``."""
        return self.type_constraints.get(type_str, (type_str,))

    def input(self, index: int) -> FormalParameter | None:
        """Formal parameter of the actual input ``index``; the last one repeats if it is variadic."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> FormalParameter | None:
        """Formal parameter of the actual output ``index``; the last one repeats if it is variadic."""
        return _formal(self.outputs, index)


def _formal(parameters: Sequence[FormalParameter], index: int) -> FormalParameter | None:
    if index < len(parameters):
        return parameters[index]
    if parameters and parameters[-1].option == ParameterOption.VARIADIC:
        return parameters[-1]
    return None


@functools.cache
def _lines() -> dict[tuple[str, str], str]:
    """(domain, operator) → its versions as JSON text, which is parsed for the operators that are asked for only."""
    text = resources.files("ort_sdk.api").joinpath("data/operator_schemas.txt").read_text(encoding="utf-8")
    head, *rows = text.splitlines()
    lines = {("", ""): head}
    for row in rows:
        domain, op_type, versions = row.split("\t")
        lines[domain, op_type] = versions
    return lines


@functools.cache
def _head() -> dict[str, Any]:
    head: dict[str, Any] = json.loads(_lines()["", ""])
    return head


@functools.cache
def _versions(op_type: str, domain: str) -> dict[str, Any]:
    line = _lines().get((domain, op_type)) if op_type else None
    versions: dict[str, Any] = {} if line is None else json.loads(line)
    return versions


@functools.cache
def schema_versions(op_type: str, domain: str = "") -> tuple[int, ...]:
    """Since-versions of an operator, ascending; empty if it is unknown."""
    return tuple(sorted(int(version) for version in _versions(op_type, domain)))


@functools.cache
def find_schema(op_type: str, opset_version: int, domain: str = "") -> OperatorSchema | None:
    """Schema in force at an opset version: the one with the highest since-version not above it; None if there is none."""
    candidates = [version for version in schema_versions(op_type, domain) if version <= opset_version]
    if not candidates:
        return None
    return _read(op_type, domain, candidates[-1])


def operator_names(domain: str = "") -> tuple[str, ...]:
    """Operators of a domain, sorted."""
    return tuple(sorted(op_type for found, op_type in _lines() if found == domain and op_type))


def newest_opset(domain: str = "") -> int:
    """Newest opset version of a domain the table knows; 1 for unknown domains."""
    return int(_head()["newest_opset"].get(domain, 1))


def _read(op_type: str, domain: str, version: int) -> OperatorSchema:
    type_sets = _head()["type_sets"]
    entry = _versions(op_type, domain)[str(version)]
    return OperatorSchema(
        op_type=op_type,
        domain=domain,
        since_version=version,
        inputs=_parameters(entry["inputs"]),
        outputs=_parameters(entry["outputs"]),
        type_constraints={name: tuple(type_sets[index]) for name, index in entry["types"].items()},
        attribute_types=entry.get("attributes", {}),
        attribute_defaults=entry.get("defaults", {}),
        required_attributes=tuple(entry.get("required", ())),
        min_inputs=entry["arity"][0],
        max_inputs=entry["arity"][1],
        min_outputs=entry["arity"][2],
        max_outputs=entry["arity"][3],
        is_deprecated=entry.get("deprecated", False),
        has_function=entry.get("function", False),
    )


def _parameters(rows: Sequence[Sequence[Any]]) -> tuple[FormalParameter, ...]:
    return tuple(
        FormalParameter(name, type_str, ParameterOption(option), homogeneous) for name, type_str, option, homogeneous in rows
    )
