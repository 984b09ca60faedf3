"""Element types as the device language stores and computes them."""

from __future__ import annotations

from ort_sdk.api import TensorElementType

__all__ = ["COMPUTE", "HALF_TYPES", "STORAGE", "is_floating", "is_integer"]

STORAGE = {
    TensorElementType.BOOL: "b8",
    TensorElementType.INT8: "i8",
    TensorElementType.INT16: "i16",
    TensorElementType.INT32: "i32",
    TensorElementType.INT64: "i64",
    TensorElementType.UINT8: "u8",
    TensorElementType.UINT16: "u16",
    TensorElementType.UINT32: "u32",
    TensorElementType.UINT64: "u64",
    TensorElementType.FLOAT: "f32",
    TensorElementType.DOUBLE: "f64",
    TensorElementType.FLOAT16: "f16",
    TensorElementType.BFLOAT16: "bf16",
}
"""Element type → type of its elements in memory."""

HALF_TYPES = frozenset({TensorElementType.FLOAT16, TensorElementType.BFLOAT16})

COMPUTE = {
    element_type: "f32" if element_type in HALF_TYPES else "i32" if element_type is TensorElementType.BOOL else name
    for element_type, name in STORAGE.items()
}
"""Element type → type of a variable that holds such an element. A bool is an i32, 0 or 1."""


def is_floating(element_type: TensorElementType) -> bool:
    """Whether it is a floating-point type."""
    return COMPUTE[element_type] in {"f32", "f64"}


def is_integer(element_type: TensorElementType) -> bool:
    """Whether it is an integer type; bool is none."""
    return element_type is not TensorElementType.BOOL and not is_floating(element_type)
