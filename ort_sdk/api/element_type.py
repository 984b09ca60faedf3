"""Element types of tensors: ONNX's integer codes, ONNX's names, bit widths and NumPy dtypes."""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import numpy as np

from .errors import InvalidArgument
from .optional_packages import needs_package

__all__ = ["TensorElementType", "element_type_of", "tensor_type", "tensor_type_element"]


class TensorElementType(IntEnum):
    """Element type of a tensor, with the codes of ONNX's ``TensorProto.DataType``."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    __hash__ = int.__hash__  # the one of Enum is a call of Python's, and members are keys everywhere

    @property
    def onnx_name(self) -> str:
        """Name used inside ONNX type strings, ``float`` in ``tensor(float)``."""
        return _ONNX_NAMES[self]

    @property
    def bit_width(self) -> int:
        """Bits of one element in ONNX's packed form; 0 for strings, whose size is not fixed."""
        return _BIT_WIDTHS[self]

    @property
    def is_packed(self) -> bool:
        """Whether ONNX stores several elements in one byte."""
        return 0 < self.bit_width < 8

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """NumPy dtype of an array of these elements; strings are ``object``, types NumPy lacks are ml_dtypes'."""
        return _numpy_dtype(self)

    def nbytes(self, elements: int) -> int:
        """Bytes that ``elements`` elements take in ONNX's packed form."""
        return (elements * self.bit_width + 7) // 8

    @classmethod
    def from_onnx_name(cls, name: str) -> TensorElementType:
        """Element type for ONNX's name of it (``float``, ``bfloat16``).

        Raises:
            InvalidArgument: no such element type.
        """
        try:
            return _BY_NAME[name]
        except KeyError:
            raise InvalidArgument(f"unknown tensor element type '{name}'; known: {', '.join(_BY_NAME)}") from None

    @classmethod
    def from_numpy_dtype(cls, dtype: Any) -> TensorElementType:
        """Element type of a NumPy dtype. Unicode and object dtypes are strings.

        Raises:
            InvalidArgument: ONNX has no such element type.
        """
        return _from_numpy_dtype(np.dtype(dtype))


_ONNX_NAMES = {element_type: element_type.name.lower() for element_type in TensorElementType}

_BIT_WIDTHS = {
    TensorElementType.UNDEFINED: 0,
    TensorElementType.FLOAT: 32,
    TensorElementType.UINT8: 8,
    TensorElementType.INT8: 8,
    TensorElementType.UINT16: 16,
    TensorElementType.INT16: 16,
    TensorElementType.INT32: 32,
    TensorElementType.INT64: 64,
    TensorElementType.STRING: 0,
    TensorElementType.BOOL: 8,
    TensorElementType.FLOAT16: 16,
    TensorElementType.DOUBLE: 64,
    TensorElementType.UINT32: 32,
    TensorElementType.UINT64: 64,
    TensorElementType.COMPLEX64: 64,
    TensorElementType.COMPLEX128: 128,
    TensorElementType.BFLOAT16: 16,
    TensorElementType.FLOAT8E4M3FN: 8,
    TensorElementType.FLOAT8E4M3FNUZ: 8,
    TensorElementType.FLOAT8E5M2: 8,
    TensorElementType.FLOAT8E5M2FNUZ: 8,
    TensorElementType.UINT4: 4,
    TensorElementType.INT4: 4,
    TensorElementType.FLOAT4E2M1: 4,
    TensorElementType.FLOAT8E8M0: 8,
    TensorElementType.UINT2: 2,
    TensorElementType.INT2: 2,
    TensorElementType.FLOAT6E2M3: 6,
    TensorElementType.FLOAT6E3M2: 6,
}

_BY_NAME = {member.onnx_name: member for member in TensorElementType if member}

_NATIVE_DTYPES: dict[TensorElementType, np.dtype[Any]] = {
    TensorElementType.FLOAT: np.dtype(np.float32),
    TensorElementType.UINT8: np.dtype(np.uint8),
    TensorElementType.INT8: np.dtype(np.int8),
    TensorElementType.UINT16: np.dtype(np.uint16),
    TensorElementType.INT16: np.dtype(np.int16),
    TensorElementType.INT32: np.dtype(np.int32),
    TensorElementType.INT64: np.dtype(np.int64),
    TensorElementType.STRING: np.dtype(object),
    TensorElementType.BOOL: np.dtype(np.bool_),
    TensorElementType.FLOAT16: np.dtype(np.float16),
    TensorElementType.DOUBLE: np.dtype(np.float64),
    TensorElementType.UINT32: np.dtype(np.uint32),
    TensorElementType.UINT64: np.dtype(np.uint64),
    TensorElementType.COMPLEX64: np.dtype(np.complex64),
    TensorElementType.COMPLEX128: np.dtype(np.complex128),
}

_FROM_NATIVE = {dtype: member for member, dtype in _NATIVE_DTYPES.items()}

_ML_DTYPE_NAMES = {
    TensorElementType.BFLOAT16: "bfloat16",
    TensorElementType.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorElementType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorElementType.FLOAT8E5M2: "float8_e5m2",
    TensorElementType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorElementType.UINT4: "uint4",
    TensorElementType.INT4: "int4",
    TensorElementType.FLOAT4E2M1: "float4_e2m1fn",
    TensorElementType.FLOAT8E8M0: "float8_e8m0fnu",
    TensorElementType.UINT2: "uint2",
    TensorElementType.INT2: "int2",
    TensorElementType.FLOAT6E2M3: "float6_e2m3fn",
    TensorElementType.FLOAT6E3M2: "float6_e3m2fn",
}

_FROM_ML_DTYPE_NAME = {name: member for member, name in _ML_DTYPE_NAMES.items()}


@functools.cache
def _numpy_dtype(element_type: TensorElementType) -> np.dtype[Any]:
    native = _NATIVE_DTYPES.get(element_type)
    if native is not None:
        return native
    if element_type not in _ML_DTYPE_NAMES:
        raise InvalidArgument(f"tensor element type {element_type.name} has no NumPy dtype")
    with needs_package("ml_dtypes", f"element type {element_type.name}"):
        import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPE_NAMES[element_type]))
    return dtype


@functools.cache
def _from_numpy_dtype(dtype: np.dtype[Any]) -> TensorElementType:
    native = _FROM_NATIVE.get(dtype.newbyteorder("="))
    if native is not None:
        return native
    if dtype.kind in "USTO":
        return TensorElementType.STRING
    member = _FROM_ML_DTYPE_NAME.get(dtype.name)
    if member is None:
        raise InvalidArgument(f"NumPy dtype '{dtype}' is not an ONNX tensor element type")
    return member


def element_type_of(array: Any) -> TensorElementType:
    """Element type of a NumPy array, or of any array whose dtype NumPy understands."""
    return _from_numpy_dtype(np.dtype(array.dtype))


@functools.cache
def tensor_type(element_type: TensorElementType) -> str:
    """ONNX type string of a dense tensor, ``tensor(float)``."""
    return f"tensor({element_type.onnx_name})"


@functools.cache
@functools.lru_cache(maxsize=256)  # asked several times for each value of a graph, and of few types
def tensor_type_element(type_string: str) -> TensorElementType | None:
    """Element type of ``tensor(...)``; None for sequences, maps, optionals and sparse tensors."""
    if not type_string.startswith("tensor("):
        return None
    return TensorElementType.from_onnx_name(type_string[7:-1])
