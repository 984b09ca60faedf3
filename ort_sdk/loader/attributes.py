"""``AttributeProto`` → Python value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import InvalidGraph, Tensor
from ort_sdk.graph import AttributeReference, Graph, SparseTensor, TypeString

from .types import text, type_string

__all__ = ["AttributeReader"]


class AttributeReader:
    """Decodes attributes; tensors, sparse tensors and graphs by the given functions."""

    def __init__(
        self,
        read_tensor: Callable[[Any], Tensor],
        read_sparse_tensor: Callable[[Any], SparseTensor],
        read_graph: Callable[[Any], Graph],
    ) -> None:
        self._decoders: dict[str, tuple[str, Callable[[Any], Any], bool]] = {
            "FLOAT": ("f", float, False),
            "INT": ("i", int, False),
            "STRING": ("s", text, False),
            "TENSOR": ("t", read_tensor, False),
            "GRAPH": ("g", read_graph, False),
            "SPARSE_TENSOR": ("sparse_tensor", read_sparse_tensor, False),
            "TYPE_PROTO": ("tp", _read_type, False),
            "FLOATS": ("floats", float, True),
            "INTS": ("ints", int, True),
            "STRINGS": ("strings", text, True),
            "TENSORS": ("tensors", read_tensor, True),
            "GRAPHS": ("graphs", read_graph, True),
            "SPARSE_TENSORS": ("sparse_tensors", read_sparse_tensor, True),
            "TYPE_PROTOS": ("type_protos", _read_type, True),
        }

    def read(self, proto: Any, owner: str) -> Any:
        """Value of one attribute.

        Args:
            proto: ``AttributeProto``.
            owner: node or function it belongs to, for messages.

        Returns:
            int, float, str (bytes that are not UTF-8 as surrogate escapes), Tensor, SparseTensor, Graph, TypeString,
            AttributeReference, or a list of one kind of these.

        Raises:
            InvalidGraph: the attribute has no type or an unknown one.
        """
        if proto.ref_attr_name:
            return AttributeReference(text(proto.ref_attr_name))
        field, decode, repeated = self._decoder(proto, owner)
        value = getattr(proto, field)
        return [decode(item) for item in value] if repeated else decode(value)

    def _decoder(self, proto: Any, owner: str) -> tuple[str, Callable[[Any], Any], bool]:
        if proto.type:
            return self._decoders[proto.AttributeType.Name(proto.type)]
        # Files of IR version 1 carry no type: the one field that is set tells it.
        present = {descriptor.name for descriptor, _ in proto.ListFields()}
        for decoder in self._decoders.values():
            if decoder[0] in present:
                return decoder
        raise InvalidGraph(f"attribute '{proto.name}' of {owner} has neither a type nor a value")


def _read_type(proto: Any) -> TypeString:
    found = type_string(proto, "an attribute")
    if found is None:
        raise InvalidGraph("an attribute that is a type says nothing")
    return TypeString(found)
