"""``KernelTypeStrResolver`` → which formal parameters the type constraints of operators cover."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.api import Fail, schema_versions
from ort_sdk.graph import Graph
from ort_sdk.graph.type_strings import Argument, TypeStrings, op_id

from .flatbuffer import Table
from .slots import ArgumentSlot, OperatorSlot, ResolverSlot, TypeStringSlot

__all__ = ["check_has_schemas", "check_resolved", "checked_op_id", "read_resolver"]

_ID_PARTS = 3


def read_resolver(table: Table) -> dict[str, TypeStrings]:
    """Op id → constraint name → formal parameters.

    Raises:
        Fail: an entry has no name, is there twice, is empty, or its op id is none.
    """
    found: dict[str, TypeStrings] = {}
    for entry in table.tables(ResolverSlot.OPERATORS, "OpIdKernelTypeStrArgsEntry"):
        name = checked_op_id(entry.text(OperatorSlot.OP_ID))
        if name in found:
            raise Fail(f"Duplicate entry for op id: {name}. Invalid ORT format model.")
        found[name] = _type_strings(entry.tables(OperatorSlot.TYPE_STRINGS, "KernelTypeStrArgsEntry"), name)
    return found


def checked_op_id(text: str | None) -> str:
    """An operator's id (``:Relu:14``) as a file has it.

    Raises:
        Fail: it is none.
    """
    parts = (text or "").split(":")
    if text is None or len(parts) != _ID_PARTS or not parts[1] or not (parts[2].isascii() and parts[2].isdecimal()):
        raise Fail(f"Invalid OpIdentifier string: {text}; it takes 'domain:op_type:since_version'. Invalid ORT format model.")
    return text


def _type_strings(tables: list[Table], owner: str) -> TypeStrings:
    if not tables:
        raise Fail(f"The entry for op id {owner} has no kernel type strings. Invalid ORT format model.")
    found: TypeStrings = {}
    for table in tables:
        name = table.text(TypeStringSlot.NAME)
        if not name:
            raise Fail(f"A kernel type string of op id {owner} has no name. Invalid ORT format model.")
        if name in found:
            raise Fail(f"Duplicate entry for kernel type str: {name} of op id: {owner}. Invalid ORT format model.")
        arguments = tuple(_argument(each, owner) for each in table.tables(TypeStringSlot.ARGUMENTS, "ArgTypeAndIndex"))
        if not arguments:
            raise Fail(f"Kernel type str {name} of op id {owner} covers no argument. Invalid ORT format model.")
        found[name] = arguments
    return found


def _argument(table: Table, owner: str) -> Argument:
    kind = table.i8(ArgumentSlot.KIND)
    if kind not in (0, 1):
        raise Fail(f"An argument of op id {owner} is of kind {kind}; 0 (input) and 1 (output) are defined.")
    return "output" if kind else "input", table.u32(ArgumentSlot.INDEX)


def check_resolved(graph: Graph, resolver: Mapping[str, TypeStrings]) -> None:
    """Refuse a model with operators that its resolver does not know.

    Raises:
        Fail: there is one.
    """
    for inner in graph.walk():
        for node in inner.nodes:
            name = op_id(node.domain, node.op_type, node.since_version)
            if name not in resolver:
                raise Fail(f"Failed to find op_id: {name}, which {node.describe()} needs. Invalid ORT format model.")


def check_has_schemas(graph: Graph, version: int) -> None:
    """Refuse a model of an old version with operators that have no schema to take the type constraints from.

    Raises:
        Fail: there is one.
    """
    for inner in graph.walk():
        for node in inner.nodes:
            if node.since_version not in schema_versions(node.op_type, node.domain):
                raise Fail(
                    f"The ORT format model version [{version}] does not describe its operators, and {node.describe()} is unknown "
                    "here. Convert the ONNX model again with ONNX Runtime 1.13 or later."
                )
