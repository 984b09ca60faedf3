"""Element types as the device language stores and computes them."""

from __future__ import annotations

from ort_sdk.api import TensorElementType

__all__ = ["COMPUTE", "CONVERTED_TYPES", "HALF_TYPES", "NARROW_TYPES", "STORAGE", "is_floating", "is_integer"]

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
    TensorElementType.INT4: "i4_t",
    TensorElementType.UINT4: "u4_t",
    TensorElementType.INT2: "i2_t",
    TensorElementType.UINT2: "u2_t",
    TensorElementType.FLOAT8E4M3FN: "e4m3fn_t",
    TensorElementType.FLOAT8E4M3FNUZ: "e4m3fnuz_t",
    TensorElementType.FLOAT8E5M2: "e5m2_t",
    TensorElementType.FLOAT8E5M2FNUZ: "e5m2fnuz_t",
    TensorElementType.FLOAT8E8M0: "e8m0_t",
    TensorElementType.FLOAT4E2M1: "e2m1_t",
    TensorElementType.FLOAT6E2M3: "e2m3_t",
    TensorElementType.FLOAT6E3M2: "e3m2_t",
}
"""Element type → type of its elements in memory."""

HALF_TYPES = frozenset({TensorElementType.FLOAT16, TensorElementType.BFLOAT16})

NARROW_TYPES = frozenset(element_type for element_type, name in STORAGE.items() if name.endswith("_t"))
"""Types of at most 8 bits that only casts know: one element a byte."""

CONVERTED_TYPES = HALF_TYPES | NARROW_TYPES
"""Types whose elements are converted as they are loaded and stored: by ``get_`` and ``put_`` with the storage type's name."""


def _computed(element_type: TensorElementType, name: str) -> str:
    if element_type in CONVERTED_TYPES:
        return {"i": "i8", "u": "u8"}.get(name[0], "f32")
    return "i32" if element_type is TensorElementType.BOOL else name


COMPUTE = {element_type: _computed(element_type, name) for element_type, name in STORAGE.items()}
"""Element type → type of a variable that holds such an element. A bool is an i32, 0 or 1."""


def is_floating(element_type: TensorElementType) -> bool:
    """Whether it is a floating-point type."""
    return COMPUTE[element_type] in {"f32", "f64"}


def is_integer(element_type: TensorElementType) -> bool:
    """Whether it is an integer type; bool is none."""
    return element_type is not TensorElementType.BOOL and not is_floating(element_type)
