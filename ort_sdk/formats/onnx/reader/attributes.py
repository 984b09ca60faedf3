"""``AttributeProto`` → Python value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import InvalidGraph, Tensor
from ort_sdk.api.long_lists import CodedList, NumberList
from ort_sdk.graph import AttributeReference, Graph, SparseTensor, TypeString

from .types import text, type_string

__all__ = ["AttributeReader"]

_MANY = 1 << 10
"""Strings from which on each distinct one is decoded once."""
_LISTS = ("floats", "ints", "strings", "tensors", "graphs", "sparse_tensors", "type_protos")


class AttributeReader:
    """Decodes attributes; tensors, sparse tensors and graphs by the given functions."""

    def __init__(
        self,
        read_tensor: Callable[[Any], Tensor],
        read_sparse_tensor: Callable[[Any], SparseTensor],
        read_graph: Callable[[Any], Graph],
    ) -> None:
        self._decoders: dict[int, tuple[str, Callable[[Any], Any]]] = {
            1: ("f", float),
            2: ("i", int),
            3: ("s", text),
            4: ("t", read_tensor),
            5: ("g", read_graph),
            6: ("floats", _numbers),
            7: ("ints", _numbers),
            8: ("strings", _texts),
            9: ("tensors", _each(read_tensor)),
            10: ("graphs", _each(read_graph)),
            11: ("sparse_tensor", read_sparse_tensor),
            12: ("sparse_tensors", _each(read_sparse_tensor)),
            13: ("tp", _read_type),
            14: ("type_protos", _each(_read_type)),
        }
        """``AttributeProto.AttributeType`` → the field, and what its content becomes."""

    def read(self, proto: Any, owner: Callable[[], str]) -> Any:
        """Value of one attribute.

        Args:
            proto: ``AttributeProto``.
            owner: gives the node or function it belongs to, for messages.

        Returns:
            int, float, str (bytes that are not UTF-8 as surrogate escapes), Tensor, SparseTensor, Graph, TypeString,
            AttributeReference, or a list of one kind of these.

        Raises:
            InvalidGraph: the attribute has no type or an unknown one.
        """
        if proto.ref_attr_name:
            return AttributeReference(proto.ref_attr_name)
        field, decode = self._decoders.get(proto.type) or self._untyped(proto, owner)
        return decode(getattr(proto, field))

    def _untyped(self, proto: Any, owner: Callable[[], str]) -> tuple[str, Callable[[Any], Any]]:
        # Files of IR version 1 carry no type: the one field that is set decides.
        for decoder in self._decoders.values():
            field = decoder[0]
            if len(getattr(proto, field)) if field in _LISTS else proto.HasField(field):
                return decoder
        raise InvalidGraph(f"attribute '{proto.name}' of {owner()} has neither a type nor a value")


def _each(decode: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda items: [decode(item) for item in items]


def _numbers(items: Any) -> list[Any]:
    return items if isinstance(items, NumberList) else list(items)


def _texts(items: Sequence[Any]) -> list[str]:
    """Trees have a mode for each of a million nodes, of which there are a handful: each is decoded once."""
    if isinstance(items, CodedList):
        return CodedList([text(value) for value in items.values], items.codes)
    if len(items) < _MANY:
        return [text(item) for item in items]
    decoded = {item: text(item) for item in set(items)}
    return [decoded[item] for item in items]


def _read_type(proto: Any) -> TypeString:
    found = type_string(proto, "an attribute")
    if found is None:
        raise InvalidGraph("an attribute that is a type says nothing")
    return TypeString(found)
