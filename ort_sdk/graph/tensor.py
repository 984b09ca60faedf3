"""Constant tensors that hold their elements as an array."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType, element_type_of

__all__ = ["ArrayTensor", "SparseTensor", "is_tensor", "pack_elements", "unpack_elements"]


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether an attribute's value is a dense tensor. To ask for all that the protocol names takes 30 times as long."""
    return hasattr(value, "element_type")


class ArrayTensor:
    """A constant in memory: made by the optimizer, decoded from a typed field, or given by the caller.

    Args:
        array: the elements; kept, not copied, and seen read-only. Sub-byte types unpacked, strings as ``object``.
    """

    __slots__ = ("_array", "element_type")

    def __init__(self, array: HostArray) -> None:
        view = array.view()
        view.flags.writeable = False
        self._array = view
        self.element_type = element_type_of(array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        return tuple(self._array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in ONNX's packed form."""
        return self.element_type.nbytes(self._array.size)

    def numpy(self) -> HostArray:
        """The elements, read-only."""
        return self._array

    def packed(self) -> HostArray:
        """The bytes as ONNX packs them."""
        return pack_elements(self._array, self.element_type)

    def __repr__(self) -> str:
        return f"ArrayTensor({self.element_type.onnx_name}, {list(self.shape)})"


class SparseTensor:
    """A sparse constant in coordinate form (ONNX's ``SparseTensorProto``)."""

    __slots__ = ("indices", "shape", "values")

    def __init__(self, values: HostArray, indices: HostArray, shape: tuple[int, ...]) -> None:
        self.values = values
        self.indices = indices
        self.shape = shape

    def to_dense(self) -> HostArray:
        """The dense array, zeros where no value is given."""
        dense = np.zeros(int(np.prod(self.shape, dtype=np.int64)), dtype=self.values.dtype)
        positions = self.indices
        if positions.ndim == 2:
            positions = np.ravel_multi_index(tuple(positions.T), self.shape) if len(positions) else positions.reshape(-1)
        dense[positions] = self.values
        return dense.reshape(self.shape)


def pack_elements(array: HostArray, element_type: TensorElementType) -> HostArray:
    """Bytes of an array as ONNX stores them (little endian, sub-byte elements packed low bits first), a uint8 vector."""
    flat: np.ndarray[Any, Any] = np.ascontiguousarray(array).reshape(-1)
    if not element_type.is_packed:
        if flat.dtype.byteorder == ">":
            flat = flat.astype(flat.dtype.newbyteorder("<"))
        return flat.view(np.uint8)
    width = element_type.bit_width
    if 8 % width == 0:
        return _merge_bytes(flat.view(np.uint8), width)
    bits = np.unpackbits(flat.view(np.uint8)[:, None], axis=1, bitorder="little")[:, :width]
    return np.packbits(bits.reshape(-1), bitorder="little")


def _merge_bytes(codes: HostArray, width: int) -> HostArray:
    """The low bits of each byte side by side; for widths that divide a byte."""
    per_byte, mask = 8 // width, np.uint8((1 << width) - 1)
    packed: HostArray = np.zeros(-(-len(codes) // per_byte), np.uint8)
    for index in range(per_byte):
        part = codes[index::per_byte]
        packed[: len(part)] |= (part & mask) << np.uint8(index * width)
    return packed


def unpack_elements(data: HostArray, element_type: TensorElementType, elements: int) -> HostArray:
    """Elements of packed bytes, one a byte, in ml_dtypes' dtype. The inverse of ``pack_elements`` for sub-byte types."""
    width = element_type.bit_width
    codes = _split_bytes(data, width, elements) if 8 % width == 0 else _split_bits(data, width, elements)
    if element_type in (TensorElementType.INT4, TensorElementType.INT2):
        signed = codes.view(np.int8)
        np.left_shift(signed, 8 - width, out=signed)
        np.right_shift(signed, 8 - width, out=signed)
    else:
        np.bitwise_and(codes, (1 << width) - 1, out=codes)
    return codes.view(element_type.numpy_dtype)


def _split_bytes(data: HostArray, width: int, elements: int) -> HostArray:
    """Each element's bits at the low end of its own byte, whatever is above them; for widths that divide a byte."""
    per_byte = 8 // width
    codes = np.empty((len(data), per_byte), dtype=np.uint8)
    for index in range(per_byte):
        np.right_shift(data, index * width, out=codes[:, index])
    return codes.reshape(-1)[:elements]


def _split_bits(data: HostArray, width: int, elements: int) -> HostArray:
    bits = np.unpackbits(data, bitorder="little", count=elements * width).reshape(elements, width)
    return np.packbits(bits, axis=1, bitorder="little").reshape(-1)
