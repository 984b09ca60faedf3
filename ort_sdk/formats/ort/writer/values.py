"""Values' types and shapes → ``ValueInfo``."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import Dimension, Fail, NodeArg, Shape, TensorElementType
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

from .builder import FileBuilder, i8, i32, i64, offset, u8

__all__ = ["write_value"]


def write_value(builder: FileBuilder, value: NodeArg, denotations: Sequence[str] = ()) -> int:
    """A ``ValueInfo``. The value without a name, which stands for what is omitted, has no type.

    Args:
        builder: takes it.
        value: name, type and shape.
        denotations: of the dimensions.

    Raises:
        Fail: the type is unknown, or none that the format has a form for.
    """
    if value.type is None and value.name:
        raise Fail(f"the type of value '{value.name}' is not known; a model in ORT format needs the types of all values")
    info = None if value.type is None else _type_info(builder, value.type, value.shape, denotations, value.name)
    name, doc = builder.text(value.name), builder.text("")
    return builder.table(
        ValueInfoSlot, offset(ValueInfoSlot.NAME, name), offset(ValueInfoSlot.DOC_STRING, doc), offset(ValueInfoSlot.TYPE, info)
    )


def _type_info(builder: FileBuilder, text: str, shape: Shape | None, denotations: Sequence[str], owner: str) -> int:
    kind, _, rest = text.partition("(")
    content = rest.removesuffix(")")
    if kind == "tensor":
        tag, value = TypeKind.TENSOR, _tensor_type(builder, content, shape, denotations)
    elif kind == "seq":
        inner = _type_info(builder, content, None, (), owner)
        tag, value = TypeKind.SEQUENCE, builder.table(SequenceSlot, offset(SequenceSlot.ELEM_TYPE, inner))
    elif kind == "map":
        key, _, mapped = content.partition(",")
        inner = _type_info(builder, mapped.strip(), None, (), owner)
        fields = (i32(MapSlot.KEY_TYPE, _code(key)), offset(MapSlot.VALUE_TYPE, inner))
        tag, value = TypeKind.MAP, builder.table(MapSlot, *fields)
    else:
        raise Fail(
            f"value '{owner}' is of type {text}, which ORT format has no form for: it knows tensors, sequences and maps; "
            "save the model in ONNX format"
        )
    denotation = builder.text("")
    return builder.table(
        TypeInfoSlot,
        offset(TypeInfoSlot.DENOTATION, denotation),
        u8(TypeInfoSlot.VALUE_TYPE, tag),
        offset(TypeInfoSlot.VALUE, value),
    )


def _code(name: str) -> int:
    return int(TensorElementType.from_onnx_name(name))


def _tensor_type(builder: FileBuilder, element: str, shape: Shape | None, denotations: Sequence[str]) -> int:
    written = None
    if shape is not None:
        words = (*denotations, *[""] * (len(shape) - len(denotations)))
        dimensions = [_dimension(builder, size, word) for size, word in zip(shape, words, strict=True)]
        written = builder.table(ShapeSlot, offset(ShapeSlot.DIM, builder.references(dimensions)))
    return builder.table(TensorTypeSlot, i32(TensorTypeSlot.ELEM_TYPE, _code(element)), offset(TensorTypeSlot.SHAPE, written))


def _dimension(builder: FileBuilder, size: Dimension, denotation: str) -> int:
    kind, number, symbol = DimensionKind.UNKNOWN, 0, None
    if isinstance(size, int):
        kind, number = DimensionKind.VALUE, size
    elif size is not None:
        kind, symbol = DimensionKind.PARAM, builder.text(size)
    value = builder.table(
        DimensionValueSlot,
        i8(DimensionValueSlot.DIM_TYPE, kind),
        i64(DimensionValueSlot.DIM_VALUE, number),
        offset(DimensionValueSlot.DIM_PARAM, symbol),
    )
    word = builder.text(denotation)
    return builder.table(DimensionSlot, offset(DimensionSlot.VALUE, value), offset(DimensionSlot.DENOTATION, word))
