"""DLPack capsules of memory at addresses: tensors that share memory with those of other libraries."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device.expressions.nodes import dense_strides, element_count

__all__ = ["SharedTensor", "capsule_of", "shared_tensor"]

_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
_CODES = {
    TensorElementType.INT8: (0, 8),
    TensorElementType.INT16: (0, 16),
    TensorElementType.INT32: (0, 32),
    TensorElementType.INT64: (0, 64),
    TensorElementType.UINT8: (1, 8),
    TensorElementType.UINT16: (1, 16),
    TensorElementType.UINT32: (1, 32),
    TensorElementType.UINT64: (1, 64),
    TensorElementType.FLOAT16: (2, 16),
    TensorElementType.FLOAT: (2, 32),
    TensorElementType.DOUBLE: (2, 64),
    TensorElementType.BFLOAT16: (4, 16),
    TensorElementType.BOOL: (6, 8),
}
"""Element type → DLPack's code of the kind, and bits."""
_ELEMENT_TYPES = {codes: element_type for element_type, codes in _CODES.items()}


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedTensor(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
# The destructor gets a capsule that nobody refers to any more: as an address, not as an object.
_dying = ctypes.PyDLL(None)
_dying.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_dying.PyCapsule_GetPointer.restype = ctypes.c_void_p
_dying.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)

_given: dict[int, Any] = {}
"""Tensors that other libraries have, by the address of their description."""


def _forget(address: int) -> None:
    _given.pop(address, None)


def _drop_unused(capsule: int) -> None:
    # A capsule that was used belongs to who took the tensor.
    if _dying.PyCapsule_IsValid(capsule, _NAME):
        _forget(_dying.PyCapsule_GetPointer(capsule, _NAME))


_deleter, _destructor = _DELETER(_forget), _DESTRUCTOR(_drop_unused)


def capsule_of(address: int, shape: Sequence[int], element_type: TensorElementType, device: tuple[int, int], owner: Any) -> Any:
    """A DLPack capsule of dense memory.

    Args:
        address: of the first element.
        shape: in elements.
        element_type: of the elements.
        device: DLPack's type of the device, and its index.
        owner: kept until the other library is done with the tensor.

    Raises:
        InvalidArgument: DLPack has no such type.
    """
    if element_type not in _CODES:
        raise InvalidArgument(f"DLPack has no tensors of {element_type.name}; allowed are {', '.join(t.name for t in _CODES)}")
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    strides = (ctypes.c_int64 * len(shape))(*dense_strides(tuple(shape)))
    code, bits = _CODES[element_type]
    managed = _ManagedTensor(
        _Tensor(address, *device, len(shape), code, bits, 1, sizes, strides, 0),
        None,
        ctypes.cast(_deleter, ctypes.c_void_p),
    )
    place = ctypes.addressof(managed)
    _given[place] = (managed, sizes, strides, owner)
    return _capsule_new(place, _NAME, _destructor)


class SharedTensor:
    """Another library's tensor, which is given back when the object ends.

    Args:
        managed: address of its description.
    """

    def __init__(self, managed: int) -> None:
        self._managed = managed
        tensor = _ManagedTensor.from_address(managed).tensor
        self.device = (int(tensor.device_type), int(tensor.device_id))
        """DLPack's type of the device, and its index."""
        self.shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        self.address = int(tensor.data or 0) + int(tensor.byte_offset)
        self._codes = (int(tensor.code), int(tensor.bits))
        self._lanes = int(tensor.lanes)
        self._strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None

    @property
    def element_type(self) -> TensorElementType:
        """Of its elements.

        Raises:
            InvalidArgument: there is no such type.
        """
        found = _ELEMENT_TYPES.get(self._codes)
        if found is None or self._lanes != 1:
            allowed = ", ".join(each.name for each in _CODES)
            raise InvalidArgument(
                f"taking a DLPack tensor of kind {self._codes[0]}, {self._codes[1]} bits, {self._lanes} lanes: allowed are "
                f"{allowed}"
            )
        return found

    def check_dense(self) -> None:
        """Raise if it has gaps, or another order than row by row.

        Raises:
            InvalidArgument: it has.
        """
        if self._strides is None or not element_count(self.shape):
            return
        wanted = dense_strides(self.shape)
        if any(size != 1 and has != want for size, has, want in zip(self.shape, self._strides, wanted, strict=True)):
            raise InvalidArgument(
                f"taking a DLPack tensor of shape {list(self.shape)} with strides of {list(self._strides)} elements: it must be "
                "contiguous, row by row. Copy it first"
            )

    def __del__(self) -> None:
        deleter = _ManagedTensor.from_address(self._managed).deleter
        if deleter:
            _DELETER(deleter)(self._managed)


def shared_tensor(capsule: Any) -> SharedTensor:
    """The tensor of a capsule, which is used by that.

    Raises:
        InvalidArgument: it is no capsule of a tensor, or was used before.
    """
    if not _is_capsule(capsule, _NAME):
        raise InvalidArgument("taking a DLPack tensor: it is no capsule of one, or was used already")
    managed = _capsule_pointer(capsule, _NAME)
    _rename(capsule, _USED_NAME)
    return SharedTensor(managed)
