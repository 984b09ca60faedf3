"""What the runtime needs of operator schemas: formal parameters, type constraints and since-versions.

The table is data, generated from the onnx package's schemas (and, for ``com.microsoft``, from ONNX Runtime's) by
``tools/generate_operator_schemas.py``, so that no process needs the onnx package to match kernels.
"""

from __future__ import annotations

import functools
import json
import mmap
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from .data_classes import dataclass

__all__ = [
    "FormalParameter",
    "OperatorSchema",
    "ParameterOption",
    "find_schema",
    "newest_opset",
    "operator_names",
    "schema_domains",
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
    option: ParameterOption = ParameterOption.SINGLE
    is_homogeneous: bool = True
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
    declares_attributes: bool = True
    """False if nothing is known of the operator's attributes, so that a node may have any."""

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
def _table() -> mmap.mmap:
    """The table: a line of what operators share, then one for each operator. Mapped: only what is read costs memory."""
    with Path(__file__).with_name("data").joinpath("operator_schemas.txt").open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@functools.cache
def _head() -> dict[str, Any]:
    table = _table()
    head: dict[str, Any] = json.loads(table[: table.find(b"\n")])
    # Few types stand in many sets: one text each.
    head["type_sets"] = [tuple(map(sys.intern, types)) for types in head["type_sets"]]
    return head


@functools.cache
def _versions(op_type: str, domain: str) -> dict[str, Any]:
    """An operator's versions; empty if it is unknown."""
    table = _table()
    key = f"\n{domain}\t{op_type}\t".encode(errors="surrogatepass")
    start = table.find(key) if op_type and key.count(b"\n") == 1 else -1
    if start < 0:
        return {}
    versions: dict[str, Any] = json.loads(table[start + len(key) : table.find(b"\n", start + len(key))])
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
    rows = (line.split("\t", 2) for line in _table()[:].decode().splitlines()[1:])
    return tuple(sorted(row[1] for row in rows if row[0] == domain))


def schema_domains() -> tuple[str, ...]:
    """Domains that the table has operators of; the empty one is ai.onnx."""
    return tuple(_head()["newest_opset"])


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
        type_constraints={name: type_sets[index] for name, index in entry["types"].items()},
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
