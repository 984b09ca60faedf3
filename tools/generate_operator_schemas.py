"""Write ``ort_sdk/api/data/operator_schemas.txt`` from the schemas of the onnx and onnxruntime packages.

Usage: python tools/generate_operator_schemas.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnxruntime.capi.onnxruntime_pybind11_state as onnxruntime_state

TARGET = Path(__file__).parents[1] / "ort_sdk" / "api" / "data" / "operator_schemas.txt"
MICROSOFT = "com.microsoft"
STILL_RUN = {("GroupNormalization", 18)}
"""Deprecated by onnx for a fault of their definition; models carry them and ONNX Runtime runs them."""
RUNTIME_ONLY = ("Memcpy", "_TRT", "GRUUnit", "GivenTensorFill")
"""Parts of names of operators that onnxruntime adds to ai.onnx for its own graphs or for one accelerator."""


class TypeSets:
    """Type lists, each stored once and referred to by its index."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self._index: dict[tuple[str, ...], int] = {}

    def index(self, types: list[str]) -> int:
        key = tuple(sorted(map(type_string, types)))
        if key not in self._index:
            self._index[key] = len(self.rows)
            self.rows.append(list(key))
        return self._index[key]


def type_string(text: str) -> str:
    """Type string as models give it: a map holds values of a type (``map(int64,tensor(float))``), which schemas abridge."""
    return re.sub(r"map\((\w+), (\w+)\)", r"map(\1,tensor(\2))", text)


def parameters(formals: Any) -> list[list[Any]]:
    rows = []
    for formal in formals:
        type_str = getattr(formal, "type_str", None) or getattr(formal, "typeStr", None)
        homogeneous = formal.is_homogeneous if hasattr(formal, "is_homogeneous") else formal.isHomogeneous
        rows.append([formal.name, type_str, int(formal.option.value), bool(homogeneous)])
    return rows


def attribute_defaults(schema: Any) -> dict[str, Any]:
    defaults = {}
    for name, attribute in schema.attributes.items():
        value = getattr(attribute, "default_value", None)
        if value is None:
            value = onnx.AttributeProto.FromString(getattr(attribute, "_default_value", b""))
        if not value.name:
            continue
        plain = onnx.helper.get_attribute_value(value)
        if isinstance(plain, bytes):
            plain = plain.decode()
        elif isinstance(plain, list):
            plain = [item.decode() if isinstance(item, bytes) else item for item in plain]
        defaults[name] = plain
    return defaults


def entry(schema: Any, type_sets: TypeSets) -> dict[str, Any]:
    types = {item.type_param_str: type_sets.index(list(item.allowed_type_strs)) for item in schema.type_constraints}
    row: dict[str, Any] = {
        "inputs": parameters(schema.inputs),
        "outputs": parameters(schema.outputs),
        "types": types,
        "arity": [schema.min_input, schema.max_input, schema.min_output, schema.max_output],
    }
    defaults = attribute_defaults(schema)
    if defaults:
        row["defaults"] = defaults
    if schema.attributes:
        row["attributes"] = {name: int(attribute.type.value) for name, attribute in schema.attributes.items()}
    required = sorted(name for name, attribute in schema.attributes.items() if attribute.required)
    if required:
        row["required"] = required
    if schema.deprecated and (schema.name, schema.since_version) not in STILL_RUN:
        row["deprecated"] = True
    if getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False):
        row["function"] = True
    return row


def is_wanted(schema: Any, known: set[tuple[str, str, int]]) -> bool:
    """Whether a schema of onnxruntime is of its own domain, or one it adds to ai.onnx (SimplifiedLayerNormalization)."""
    if schema.domain == MICROSOFT:
        return True
    added = schema.domain == "" and (schema.domain, schema.name, schema.since_version) not in known
    return added and not any(part in schema.name for part in RUNTIME_ONLY)


def table() -> str:
    """A line of what operators share, then one for each operator: domain, name and versions, parsed when asked for."""
    type_sets = TypeSets()
    operators: dict[str, dict[str, dict[str, Any]]] = {}
    newest: dict[str, int] = {MICROSOFT: 1}
    schemas = list(onnx.defs.get_all_schemas_with_history())
    # An operator deprecated by a later opset (Upsample) keeps its entry: a model of that opset is refused by it.
    known = {(schema.domain, schema.name, schema.since_version) for schema in schemas}
    schemas += [schema for schema in onnxruntime_state.get_all_operator_schema() if is_wanted(schema, known)]
    for schema in sorted(schemas, key=lambda item: (item.domain, item.name, item.since_version)):
        versions = operators.setdefault(schema.domain, {}).setdefault(schema.name, {})
        versions[str(schema.since_version)] = entry(schema, type_sets)
    for domain, by_name in operators.items():
        if domain not in newest:
            known = max(int(version) for versions in by_name.values() for version in versions)
            newest[domain] = max(known, onnx.defs.onnx_opset_version()) if domain == "" else known
    head = compact({"newest_opset": newest, "type_sets": type_sets.rows})
    rows = [f"{domain}\t{name}\t{compact(versions)}" for domain, names in operators.items() for name, versions in names.items()]
    return "\n".join([head, *sorted(rows)]) + "\n"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file differs, write nothing")
    arguments = parser.parse_args()
    text = table()
    if arguments.check:
        if TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET} is out of date: run this script without --check", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
