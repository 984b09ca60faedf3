"""Elements of a ``TensorProto`` that are not raw bytes but numbers or strings in one of its typed fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, TensorElementType
from ort_sdk.graph.tensor import unpack_elements

from .types import text

__all__ = ["decode_typed_field"]

_FIELDS: dict[TensorElementType, tuple[str, Any]] = {
    TensorElementType.FLOAT: ("float_data", np.float32),
    TensorElementType.COMPLEX64: ("float_data", np.float32),
    TensorElementType.DOUBLE: ("double_data", np.float64),
    TensorElementType.COMPLEX128: ("double_data", np.float64),
    TensorElementType.INT64: ("int64_data", np.int64),
    TensorElementType.UINT32: ("uint64_data", np.uint64),
    TensorElementType.UINT64: ("uint64_data", np.uint64),
}
"""Element type → field and its dtype; all others are in ``int32_data``."""

_FLOAT6 = (TensorElementType.FLOAT6E2M3, TensorElementType.FLOAT6E3M2)


def decode_typed_field(proto: Any, element_type: TensorElementType, shape: tuple[int, ...], elements: int) -> HostArray:
    """Decode the typed field that belongs to an element type into a fresh array.

    ``int32_data`` holds one entry per element (narrow integers by value, 16-, 8- and 6-bit floats by bit pattern), except for
    4-bit and 2-bit types, where one entry holds one byte of packed elements.

    Raises:
        InvalidGraph: the field has more or fewer entries than the shape needs.
    """
    if element_type is TensorElementType.STRING:
        return _strings(proto, shape, elements)
    field, storage = _FIELDS.get(element_type, ("int32_data", np.int32))
    entries = getattr(proto, field)
    _check_count(proto, field, len(entries), _entries(element_type, elements), shape)
    values = np.array(entries, dtype=storage)
    return _convert(values, element_type, elements).reshape(shape)


def _entries(element_type: TensorElementType, elements: int) -> int:
    if element_type in (TensorElementType.COMPLEX64, TensorElementType.COMPLEX128):
        return 2 * elements
    if element_type.is_packed and element_type not in _FLOAT6:
        return element_type.nbytes(elements)
    return elements


def _convert(values: HostArray, element_type: TensorElementType, elements: int) -> HostArray:
    dtype = element_type.numpy_dtype
    if values.dtype != np.int32:
        return values.view(dtype) if dtype.kind == "c" else values.astype(dtype, copy=False)
    if element_type is TensorElementType.BOOL:
        return np.not_equal(values, 0)
    if element_type in _FLOAT6:
        return (values.astype(np.uint8) & 0x3F).view(dtype)
    if element_type.is_packed:
        return unpack_elements(values.astype(np.uint8), element_type, elements)
    if dtype.kind in "iu":
        return values.astype(dtype, copy=False)
    return values.astype(np.uint16 if dtype.itemsize == 2 else np.uint8).view(dtype)


def _strings(proto: Any, shape: tuple[int, ...], elements: int) -> HostArray:
    _check_count(proto, "string_data", len(proto.string_data), elements, shape)
    array = np.empty(elements, dtype=object)
    array[:] = [text(item) for item in proto.string_data]
    return array.reshape(shape)


def _check_count(proto: Any, field: str, found: int, needed: int, shape: tuple[int, ...]) -> None:
    if found != needed:
        raise InvalidGraph(f"tensor '{proto.name}' of shape {list(shape)} has {found} entries in {field}; it needs {needed}")
