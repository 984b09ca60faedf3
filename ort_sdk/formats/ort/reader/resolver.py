"""``KernelTypeStrResolver`` → which formal parameters the type constraints of operators cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ort_sdk.api import Fail, find_schema, schema_versions
from ort_sdk.formats.ort.slots import ArgumentSlot, OperatorSlot, ResolverSlot, TypeStringSlot
from ort_sdk.graph import Graph
from ort_sdk.graph.type_strings import Argument, OpIdentifier, TypeStrings, op_id, resolve_type_strings

from .flatbuffer import Table

__all__ = ["check_consistent", "check_has_schemas", "check_resolved", "checked_op_id", "read_resolver"]

_UNCHANGING_DOMAINS = ("", "ai.onnx.ml")
"""Their operators change with their versions only; those of com.microsoft gain parameters without a new version."""


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
    return str(OpIdentifier.parse(text))


def _type_strings(tables: list[Table], owner: str) -> TypeStrings:
    if not tables:
        raise Fail(f"The entry for op id {owner} has no kernel type strings. Invalid ORT format model.")
    found: TypeStrings = {}
    covered: set[Argument] = set()
    for table in tables:
        name = table.text(TypeStringSlot.NAME)
        if not name:
            raise Fail(f"A kernel type string of op id {owner} has no name. Invalid ORT format model.")
        if name in found:
            raise Fail(f"Duplicate entry for kernel type str: {name} of op id: {owner}. Invalid ORT format model.")
        arguments = tuple(_argument(each, owner) for each in table.tables(TypeStringSlot.ARGUMENTS, "ArgTypeAndIndex"))
        if not arguments:
            raise Fail(f"Kernel type str {name} of op id {owner} covers no argument. Invalid ORT format model.")
        _check_covered_once(name, arguments, covered, owner)
        found[name] = arguments
    return found


def _check_covered_once(name: str, arguments: tuple[Argument, ...], covered: set[Argument], owner: str) -> None:
    for argument in arguments:
        if argument in covered:
            raise Fail(
                f"Kernel type str {name} of op id {owner} covers {_text([argument])}, which is covered already: an argument has "
                "one type. Invalid ORT format model."
            )
        covered.add(argument)


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


def check_consistent(resolver: Mapping[str, TypeStrings], formal_inputs: Mapping[str, int]) -> None:
    """Refuse a resolver whose type strings cover arguments that the operators do not have, or not those ONNX says.

    Args:
        resolver: the file's.
        formal_inputs: op id → formal inputs of the operator, by the file's nodes.

    Raises:
        Fail: it contradicts the nodes, or a schema of ONNX's.
    """
    for name, type_strings in resolver.items():
        count = formal_inputs.get(name)
        for type_string, arguments in type_strings.items():
            beyond = [index for kind, index in arguments if kind == "input" and count is not None and index >= count]
            if beyond:
                raise Fail(
                    f"Kernel type str {type_string} of op id {name} covers input {beyond[0]}, and its nodes have {count} formal "
                    "inputs. Invalid ORT format model."
                )
        _check_as_schema(OpIdentifier.parse(name), type_strings)


def _check_as_schema(operator: OpIdentifier, found: TypeStrings) -> None:
    """Type constraints keep their names in all releases of ONNX; a formal parameter with a fixed type may have been renamed."""
    expected = resolve_type_strings(*operator) if operator.domain in _UNCHANGING_DOMAINS else None
    schema = find_schema(operator.op_type, operator.since_version, operator.domain)
    if expected is None or schema is None:
        return
    for name in schema.type_constraints:
        if name in found and name in expected and sorted(found[name]) != sorted(expected[name]):
            raise Fail(
                f"Kernel type str {name} of op id {operator} covers {_text(found[name])}; by the operator's schema it covers "
                f"{_text(expected[name])}. Invalid ORT format model."
            )


def _text(arguments: Iterable[Argument]) -> str:
    return ", ".join(f"{kind} {index}" for kind, index in arguments)


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
