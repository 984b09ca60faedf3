"""``ValueInfo`` and ``TypeInfo`` → what is known of values."""

from __future__ import annotations

from ort_sdk.api import Dimension, Fail, NodeArg, Shape
from ort_sdk.formats.onnx.reader.types import element_type
from ort_sdk.formats.ort.slots import (
    DimensionKind,
    DimensionSlot,
    DimensionValueSlot,
    MapSlot,
    SequenceSlot,
    ShapeSlot,
    TensorTypeSlot,
    TypeInfoSlot,
    TypeKind,
    ValueInfoSlot,
)

from .flatbuffer import Table

__all__ = ["dimension_denotations", "read_value"]


def read_value(table: Table) -> NodeArg:
    """A ``ValueInfo``: name, type string, shape.

    Raises:
        Fail: there is no name, a named value has no type, or the type is none of the format's.
        InvalidGraph: an element type ONNX does not define.
    """
    name = table.text(ValueInfoSlot.NAME)
    if name is None:
        raise Fail("Missing name of a NodeArg. Invalid ORT format model.")
    info = table.table(ValueInfoSlot.TYPE, "TypeInfo")
    if info is None:
        if name:
            raise Fail(f"Null type info for NodeArg '{name}'. Invalid ORT format model.")
        return NodeArg(name)
    return NodeArg(name, _type_string(info, name), _shape(info))


def dimension_denotations(table: Table) -> tuple[str, ...]:
    """Denotation of each dimension of a ``ValueInfo``'s tensor, empty where it gives none."""
    info = table.table(ValueInfoSlot.TYPE, "TypeInfo")
    return () if info is None else tuple(dimension.text(DimensionSlot.DENOTATION) or "" for dimension in _dimensions(info) or ())


def _type_string(info: Table, owner: str) -> str:
    kind = info.u8(TypeInfoSlot.VALUE_TYPE)
    if kind == TypeKind.TENSOR:
        return f"tensor({_element_name(_content(info, owner).i32(TensorTypeSlot.ELEM_TYPE), owner)})"
    if kind == TypeKind.SEQUENCE:
        return f"seq({_inner(_content(info, owner), SequenceSlot.ELEM_TYPE, owner)})"
    if kind == TypeKind.MAP:
        content = _content(info, owner)
        key = _element_name(content.i32(MapSlot.KEY_TYPE), owner)
        return f"map({key},{_inner(content, MapSlot.VALUE_TYPE, owner)})"
    raise Fail(f"Type of NodeArg '{owner}' has the code {kind}; 1 (tensor), 2 (sequence) and 3 (map) are defined.")


def _content(info: Table, owner: str) -> Table:
    content = info.table(TypeInfoSlot.VALUE, "value type")
    if content is None:
        raise Fail(f"Null value type info in TypeInfo of NodeArg '{owner}'. Invalid ORT format model.")
    return content


def _inner(content: Table, slot: int, owner: str) -> str:
    inner = content.table(slot, "TypeInfo")
    if inner is None:
        raise Fail(f"NodeArg '{owner}' is a container whose element type is null. Invalid ORT format model.")
    return _type_string(inner, owner)


def _element_name(code: int, owner: str) -> str:
    return element_type(code, f"NodeArg '{owner}'").onnx_name


def _dimensions(info: Table) -> list[Table] | None:
    if info.u8(TypeInfoSlot.VALUE_TYPE) != TypeKind.TENSOR:
        return None
    content = info.table(TypeInfoSlot.VALUE, "TensorTypeAndShape")
    shape = None if content is None else content.table(TensorTypeSlot.SHAPE, "Shape")
    return None if shape is None else shape.tables(ShapeSlot.DIM, "Dimension")


def _shape(info: Table) -> Shape | None:
    dimensions = _dimensions(info)
    return None if dimensions is None else tuple(map(_dimension, dimensions))


def _dimension(dimension: Table) -> Dimension:
    value = dimension.table(DimensionSlot.VALUE, "DimensionValue")
    kind = DimensionKind.UNKNOWN if value is None else value.i8(DimensionValueSlot.DIM_TYPE)
    if value is None or kind == DimensionKind.UNKNOWN:
        return None
    if kind == DimensionKind.VALUE:
        size = value.i64(DimensionValueSlot.DIM_VALUE)
        return size if size >= 0 else None
    if kind == DimensionKind.PARAM:
        return value.text(DimensionValueSlot.DIM_PARAM) or None
    raise Fail(
        f"A dimension has the kind {kind}; 0 (unknown), 1 (value) and 2 (parameter) are defined. Invalid ORT format model."
    )
