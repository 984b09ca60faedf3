"""ONNX's messages, as far as sessions read them; fields that no session needs are skipped.

Classes and fields have protobuf's names, fields its defaults.
"""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument

from .wire import (
    Message,
    byte_string,
    byte_strings,
    choice,
    declare,
    elements,
    float32,
    int32,
    int64,
    message,
    messages,
    numbers,
    payload,
    text,
    texts,
)

__all__ = ["NEWEST_IR_VERSION", "FunctionProto", "parse_model"]

NEWEST_IR_VERSION = 14
"""Newest IR version of ONNX that these messages are of."""


def parse_model(data: memoryview) -> Any:
    """Read a ``ModelProto``.

    Raises:
        InvalidArgument: there are no bytes.
        InvalidProtobuf: they are no message, or messages are nested too deep.
    """
    if not data:
        raise InvalidArgument("No graph was found in the protobuf.")
    return ModelProto.parse(data)


class StringStringEntryProto(Message):
    """``StringStringEntryProto``."""


class OperatorSetIdProto(Message):
    """``OperatorSetIdProto``."""


class Segment(Message):
    """``TensorProto.Segment``."""


class TensorProto(Message):
    """``TensorProto``."""


class SparseTensorProto(Message):
    """``SparseTensorProto``."""


class Dimension(Message):
    """``TensorShapeProto.Dimension``."""


class TensorShapeProto(Message):
    """``TensorShapeProto``."""


class TensorType(Message):
    """``TypeProto.Tensor`` and ``TypeProto.SparseTensor``."""


class ContainerType(Message):
    """``TypeProto.Sequence`` and ``TypeProto.Optional``."""


class MapType(Message):
    """``TypeProto.Map``."""


class OpaqueType(Message):
    """``TypeProto.Opaque``."""


class TypeProto(Message):
    """``TypeProto``."""


class ValueInfoProto(Message):
    """``ValueInfoProto``."""


class AttributeProto(Message):
    """``AttributeProto``."""


class NodeProto(Message):
    """``NodeProto``."""


class GraphProto(Message):
    """``GraphProto``."""


class FunctionProto(Message):
    """``FunctionProto``."""


class ModelProto(Message):
    """``ModelProto``."""


declare(StringStringEntryProto, {1: ("key", text), 2: ("value", text)})
declare(OperatorSetIdProto, {1: ("domain", text), 2: ("version", int64)})
declare(Segment, {1: ("begin", int64), 2: ("end", int64)})
declare(
    TensorProto,
    {
        1: ("dims", numbers("i8")),
        2: ("data_type", int32),
        3: ("segment", message(Segment)),
        4: ("float_data", elements("<f4")),
        5: ("int32_data", elements("i4")),
        6: ("string_data", byte_strings),
        7: ("int64_data", elements("i8")),
        8: ("name", text),
        9: ("raw_data", payload),
        10: ("double_data", elements("<f8")),
        11: ("uint64_data", elements("u8")),
        13: ("external_data", messages(StringStringEntryProto)),
        14: ("data_location", choice(1)),
    },
)
declare(
    SparseTensorProto,
    {1: ("values", message(TensorProto)), 2: ("indices", message(TensorProto)), 3: ("dims", numbers("i8"))},
)
declare(
    Dimension,
    {1: ("dim_value", int64), 2: ("dim_param", text), 3: ("denotation", text)},
    one_of=("dim_value", "dim_param"),
)
declare(TensorShapeProto, {1: ("dim", messages(Dimension))})
declare(TensorType, {1: ("elem_type", int32), 2: ("shape", message(TensorShapeProto))})
declare(ContainerType, {1: ("elem_type", message(TypeProto))})
declare(MapType, {1: ("key_type", int32), 2: ("value_type", message(TypeProto))})
declare(OpaqueType, {1: ("domain", text), 2: ("name", text)})
declare(
    TypeProto,
    {
        1: ("tensor_type", message(TensorType)),
        4: ("sequence_type", message(ContainerType)),
        5: ("map_type", message(MapType)),
        7: ("opaque_type", message(OpaqueType)),
        8: ("sparse_tensor_type", message(TensorType)),
        9: ("optional_type", message(ContainerType)),
    },
    one_of=("tensor_type", "sequence_type", "map_type", "opaque_type", "sparse_tensor_type", "optional_type"),
)
declare(ValueInfoProto, {1: ("name", text), 2: ("type", message(TypeProto))})
declare(
    AttributeProto,
    {
        1: ("name", text),
        2: ("f", float32),
        3: ("i", int64),
        4: ("s", byte_string),
        5: ("t", message(TensorProto)),
        6: ("g", message(GraphProto)),
        7: ("floats", numbers("<f4")),
        8: ("ints", numbers("i8")),
        9: ("strings", byte_strings),
        10: ("tensors", messages(TensorProto)),
        11: ("graphs", messages(GraphProto)),
        14: ("tp", message(TypeProto)),
        15: ("type_protos", messages(TypeProto)),
        20: ("type", choice(14)),
        21: ("ref_attr_name", text),
        22: ("sparse_tensor", message(SparseTensorProto)),
        23: ("sparse_tensors", messages(SparseTensorProto)),
    },
)
declare(
    NodeProto,
    {
        1: ("input", texts),
        2: ("output", texts),
        3: ("name", text),
        4: ("op_type", text),
        5: ("attribute", messages(AttributeProto)),
        7: ("domain", text),
        8: ("overload", text),
    },
)
declare(
    GraphProto,
    {
        1: ("node", messages(NodeProto)),
        2: ("name", text),
        5: ("initializer", messages(TensorProto)),
        10: ("doc_string", text),
        11: ("input", messages(ValueInfoProto)),
        12: ("output", messages(ValueInfoProto)),
        13: ("value_info", messages(ValueInfoProto)),
        15: ("sparse_initializer", messages(SparseTensorProto)),
        16: ("metadata_props", messages(StringStringEntryProto)),
    },
)
declare(
    FunctionProto,
    {
        1: ("name", text),
        4: ("input", texts),
        5: ("output", texts),
        6: ("attribute", texts),
        7: ("node", messages(NodeProto)),
        9: ("opset_import", messages(OperatorSetIdProto)),
        10: ("domain", text),
        11: ("attribute_proto", messages(AttributeProto)),
        13: ("overload", text),
    },
)
declare(
    ModelProto,
    {
        1: ("ir_version", int64),
        2: ("producer_name", text),
        3: ("producer_version", text),
        4: ("domain", text),
        5: ("model_version", int64),
        6: ("doc_string", text),
        7: ("graph", message(GraphProto)),
        8: ("opset_import", messages(OperatorSetIdProto)),
        14: ("metadata_props", messages(StringStringEntryProto)),
        25: ("functions", messages(FunctionProto)),
    },
)
