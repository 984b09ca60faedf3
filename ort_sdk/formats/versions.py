"""IR versions, opset imports, and what they make of a node's operator."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from ort_sdk.api import Fail, InvalidGraph, OperatorSchema, ParameterOption, newest_opset, operator_names
from ort_sdk.graph import Node
from ort_sdk.graph.attribute_check import check_attributes
from ort_sdk.graph.operator_schemas import TABLE_SCHEMAS, OperatorSchemas

from .body_check import check_bodies

__all__ = [
    "FunctionKey",
    "OperatorResolver",
    "check_ir_version",
    "check_versioned",
    "newest_imports",
    "normal_domain",
    "parse_opset_imports",
    "read_opset_imports",
]

FunctionKey = tuple[str, str, str]
"""(domain, name, overload)"""

KNOWN_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")
_OFFICIAL_DOMAINS = ("", "ai.onnx.ml")
_FIRST_IR_VERSION_WITH_OPSETS = 3


def normal_domain(domain: str) -> str:
    """The domain as the graph names it: empty for ``ai.onnx``."""
    return "" if domain == "ai.onnx" else domain


def check_ir_version(found: int | None, newest: int) -> None:
    """Refuse models of no or of a newer IR version.

    Raises:
        Fail: the version is missing, or newer than the installed onnx package knows.
    """
    if found is None or found < 0:
        raise Fail(f"the model's ir_version is {'missing' if found is None else found}; one from 1 to {newest} is needed")
    if found > newest:
        raise Fail(f"Unsupported model IR version: {found}, max supported IR version: {newest}.")


def read_opset_imports(proto: Any, ir_version: int) -> dict[str, int]:
    """Opset imports of a model: what it says, and the newest version of each known domain it does not mention.

    Raises:
        InvalidGraph: none at all in a model whose IR version needs them, or one domain twice with different versions.
        Fail: a version of an official domain that is newer than the schema table, or below 1.
    """
    imports = parse_opset_imports(proto.opset_import)
    if not imports:
        if ir_version >= _FIRST_IR_VERSION_WITH_OPSETS:
            raise InvalidGraph("Missing opset in the model. All ModelProtos MUST have at least one entry in opset_import.")
        imports[""] = 1
    return newest_imports(imports)


def newest_imports(imports: Mapping[str, int]) -> dict[str, int]:
    """Imports completed by the newest version of each known domain they do not mention."""
    return {**{domain: newest_opset(domain) for domain in KNOWN_DOMAINS}, **imports}


def parse_opset_imports(protos: Iterable[Any], *, may_be_newer: bool = False) -> dict[str, int]:
    """``OperatorSetIdProto`` messages → domain → version, checked.

    Args:
        protos: the messages.
        may_be_newer: whether versions newer than the schema table are taken, since nodes say themselves of which version they
            are.

    Raises:
        InvalidGraph: one domain twice with different versions.
        Fail: a version of an official domain that is newer than the schema table, or below 1.
    """
    imports: dict[str, int] = {}
    for proto in protos:
        domain = normal_domain(proto.domain)
        if imports.setdefault(domain, proto.version) != proto.version:
            raise InvalidGraph(f"domain '{domain or 'ai.onnx'}' is imported at versions {imports[domain]} and {proto.version}")
    for domain in _OFFICIAL_DOMAINS:
        version = imports.get(domain, 1)
        if version < 1 or (version > newest_opset(domain) and not may_be_newer):
            raise Fail(
                f"the model imports opset {version} of domain '{domain or 'ai.onnx'}'; supported are 1 to {newest_opset(domain)}"
            )
    return imports


class OperatorResolver:
    """Finds the schema of nodes in a scope of opset imports, and checks calls against it.

    Args:
        imports: domain → opset version in force.
        functions: keys of model-local functions, whose calls need no schema.
        schemas: of the operators.
        is_function: whether the scope is a function's, so that attributes may refer to those of the call.
    """

    def __init__(
        self,
        imports: Mapping[str, int],
        functions: Container[FunctionKey],
        schemas: OperatorSchemas = TABLE_SCHEMAS,
        *,
        is_function: bool = False,
    ) -> None:
        self._imports = imports
        self._functions = functions
        self._schemas = schemas
        self._is_function = is_function

    def resolve(self, node: Node) -> None:
        """Set the node's since-version: its schema's, or the opset version imported for an operator without any.

        Raises:
            InvalidGraph: the domain or the operator has schemas but none of that version, or the call does not fit the schema.
        """
        version = self._imports.get(node.domain, 1)
        schema = self._schemas.find(node.op_type, version, node.domain)
        needs_schema = node.domain in KNOWN_DOMAINS or self._schemas.declares(node.op_type, node.domain)
        if schema is not None:
            node.since_version = schema.since_version
        elif not needs_schema:
            node.since_version = version
        if (node.domain, node.op_type, node.overload) in self._functions:
            return
        if schema is None and needs_schema:
            raise InvalidGraph(_unknown_operator(node, version, self._schemas))
        if schema is not None:
            _check_against(node, schema, version, may_refer=self._is_function)


def check_versioned(node: Node, schemas: OperatorSchemas) -> None:
    """Check a node that says itself which version of its operator it is of, if that version has a schema.

    Raises:
        InvalidGraph: the call does not fit the schema.
    """
    schema = schemas.of(node)
    if schema is not None:
        _check_against(node, schema, node.since_version)


def _check_against(node: Node, schema: OperatorSchema, version: int, *, may_refer: bool = False) -> None:
    _check_call(node, schema, version)
    check_attributes(node, schema, may_refer=may_refer)
    if node.subgraphs:
        check_bodies(node)


def _unknown_operator(node: Node, version: int, schemas: OperatorSchemas) -> str:
    known = schemas.declares(node.op_type, node.domain) or node.op_type in operator_names(node.domain)
    hint = "; the operator exists in later versions" if known else ""
    return (
        f"This is an invalid model. In Node ('{node.name}', {node.op_type}, '{node.domain or 'ai.onnx'}'), Error: "
        f"No Op registered for {node.op_type} with domain_version of {version}{hint}"
    )


def _check_call(node: Node, schema: OperatorSchema, version: int) -> None:
    if schema.is_deprecated:
        raise InvalidGraph(f"{node.describe()}: Op registered for {node.op_type} is deprecated in domain_version of {version}")
    if not schema.min_inputs <= len(node.inputs) <= schema.max_inputs:
        raise _wrong_arity(node, "inputs", len(node.inputs), schema.min_inputs, schema.max_inputs)
    if not schema.min_outputs <= len(node.outputs) <= schema.max_outputs:
        raise _wrong_arity(node, "outputs", len(node.outputs), schema.min_outputs, schema.max_outputs)
    if "" in node.inputs:
        _check_omitted(node, schema)


def _check_omitted(node: Node, schema: OperatorSchema) -> None:
    for index, name in enumerate(node.inputs):
        formal = schema.input(index)
        if not name and formal is not None and formal.option == ParameterOption.SINGLE:
            raise InvalidGraph(
                f"{node.describe()}: input {index} ('{formal.name}') is marked single but has an empty string in the graph"
            )


def _wrong_arity(node: Node, what: str, found: int, least: int, most: int) -> InvalidGraph:
    return InvalidGraph(f"{node.describe()} has {found} {what}; its operator takes {least} to {most}")
