"""Type strings of a model's operators → ``KernelTypeStrResolver``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ort_sdk.api import Fail
from ort_sdk.formats.ort.slots import ArgumentSlot, OperatorSlot, ResolverSlot, TypeStringSlot
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.type_strings import Argument, TypeStrings, op_id, resolve_type_strings, type_strings_of

from .builder import FileBuilder, i8, offset, u32
from .runtime_optimizations import standing_optimizations

__all__ = ["write_resolver"]

T = TypeVar("T")


def write_resolver(builder: FileBuilder, graph: Graph, known: Mapping[str, TypeStrings], schemas: OperatorSchemas) -> int:
    """A ``KernelTypeStrResolver`` for all operators of a graph and its bodies, and those its runtime optimizations make.

    Args:
        builder: takes it.
        graph: the main graph.
        known: op id → type strings, which count more than a schema.
        schemas: of the operators.

    Raises:
        Fail: an operator has neither a schema nor an entry in ``known``.
    """
    operators = {op_id(node.domain, node.op_type, node.since_version): node for inner in graph.walk() for node in inner.nodes}
    found = {**_produced(graph, known), **{name: _type_strings(node, name, known, schemas) for name, node in operators.items()}}
    entries = [_operator(builder, name, type_strings) for name, type_strings in _sorted(found)]
    return builder.table(ResolverSlot, offset(ResolverSlot.OPERATORS, builder.references(entries)))


def _sorted(entries: Mapping[str, T]) -> list[tuple[str, T]]:
    """In order of the keys' bytes, as FlatBuffers looks keys up."""
    return sorted(entries.items(), key=lambda entry: entry[0].encode("utf-8", "surrogateescape"))


def _produced(graph: Graph, known: Mapping[str, TypeStrings]) -> dict[str, TypeStrings]:
    """Entries for operators that runtime optimizations make, as far as they are known: unknown records are kept as they are."""
    found: dict[str, TypeStrings] = {}
    for name in (name for inner in graph.walk() for each in standing_optimizations(inner) for name in each.produced):
        domain, op_type, since_version = name.split(":")
        type_strings = known.get(name) or resolve_type_strings(domain, op_type, int(since_version))
        if type_strings:
            found[name] = type_strings
    return found


def _type_strings(node: Node, name: str, known: Mapping[str, TypeStrings], schemas: OperatorSchemas) -> TypeStrings:
    found, schema = known.get(name), schemas.of(node)
    if found is not None:
        return found
    if schema is None:
        raise Fail(
            f"{node.describe()}: its operator has no schema, and a model in ORT format needs the formal parameters of all "
            "operators; declare it in its provider with KernelRegistry.declare_operator, or save the model in ONNX format"
        )
    return type_strings_of(schema)


def _operator(builder: FileBuilder, name: str, type_strings: TypeStrings) -> int:
    entries = [_type_string(builder, each, arguments) for each, arguments in _sorted(type_strings)]
    fields = (offset(OperatorSlot.OP_ID, builder.text(name)), offset(OperatorSlot.TYPE_STRINGS, builder.references(entries)))
    return builder.table(OperatorSlot, *fields)


def _type_string(builder: FileBuilder, name: str, arguments: tuple[Argument, ...]) -> int:
    written = [
        builder.table(ArgumentSlot, i8(ArgumentSlot.KIND, int(kind == "output")), u32(ArgumentSlot.INDEX, index))
        for kind, index in arguments
    ]
    fields = (offset(TypeStringSlot.NAME, builder.text(name)), offset(TypeStringSlot.ARGUMENTS, builder.references(written)))
    return builder.table(TypeStringSlot, *fields)
