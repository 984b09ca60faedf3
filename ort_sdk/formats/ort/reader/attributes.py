"""``Attribute`` → Python value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Fail, Tensor
from ort_sdk.formats.ort.slots import AttributeKind, AttributeSlot
from ort_sdk.graph import Graph

from .flatbuffer import Table

__all__ = ["AttributeReader"]

_STORABLE = ", ".join(f"{int(kind)} ({kind.name})" for kind in AttributeKind)


class AttributeReader:
    """Decodes attributes; tensors and graphs by the given functions."""

    def __init__(self, read_tensor: Callable[[Table], Tensor], read_graph: Callable[[Table], Graph]) -> None:
        self._decoders: dict[int, Callable[[Table, str], Any]] = {
            AttributeKind.FLOAT: lambda table, _owner: table.f32(AttributeSlot.F),
            AttributeKind.INT: lambda table, _owner: table.i64(AttributeSlot.I),
            AttributeKind.STRING: lambda table, _owner: table.text(AttributeSlot.S) or "",
            AttributeKind.TENSOR: lambda table, owner: read_tensor(_part(table, AttributeSlot.T, "Tensor", owner)),
            AttributeKind.GRAPH: lambda table, owner: read_graph(_part(table, AttributeSlot.G, "Graph", owner)),
            AttributeKind.FLOATS: lambda table, _owner: table.numbers(AttributeSlot.FLOATS, "<f4"),
            AttributeKind.INTS: lambda table, _owner: table.numbers(AttributeSlot.INTS, "<i8"),
            AttributeKind.STRINGS: lambda table, _owner: table.many_texts(AttributeSlot.STRINGS),
            AttributeKind.TENSORS: lambda table, _owner: [
                read_tensor(tensor) for tensor in table.tables(AttributeSlot.TENSORS, "Tensor")
            ],
        }

    def read(self, tables: list[Table], owner: str) -> dict[str, Any]:
        """Attributes of a node: name → int, float, str, Tensor, Graph, or a list of one kind of these.

        Args:
            tables: one for each attribute.
            owner: the node, for messages.

        Raises:
            Fail: a name is missing or there twice, or the type is none that can be stored.
        """
        attributes: dict[str, Any] = {}
        for table in tables:
            name = table.text(AttributeSlot.NAME)
            if not name or name in attributes:
                raise Fail(f"{owner} has an attribute without a name, or '{name}' twice. Invalid ORT format model.")
            kind = table.i32(AttributeSlot.TYPE)
            if kind not in self._decoders:
                raise Fail(f"Unsupported attribute type {kind} of '{name}' of {owner}; {_STORABLE} can be stored")
            attributes[name] = self._decoders[kind](table, f"attribute '{name}' of {owner}")
        return attributes


def _part(table: Table, slot: int, kind: str, owner: str) -> Table:
    part = table.table(slot, kind)
    if part is None:
        raise Fail(f"Null {kind.lower()} in {owner}. Invalid ORT format model.")
    return part
