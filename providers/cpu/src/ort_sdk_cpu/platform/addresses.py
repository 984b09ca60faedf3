"""Addresses of arrays, read from NumPy's array structure where its layout is the expected one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import NamedTuple

__all__ = ["OBJECT_HEADER_BYTES", "address_of", "array_header", "array_header_at"]

OBJECT_HEADER_BYTES = object.__basicsize__
"""Bytes of ``PyObject``, which every object's structure begins with."""


def _interface_address(array: HostArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _structure_address(array: HostArray) -> int:
    return ctypes.c_ssize_t.from_address(id(array) + OBJECT_HEADER_BYTES).value


def _fastest() -> Callable[[HostArray], int]:
    """The first field of ``PyArrayObject`` is the address: to read it takes a fifth of the time of the array interface."""
    samples: list[HostArray] = [np.zeros(4, np.float32), np.zeros((2, 3))[1:]]
    is_expected = all(_structure_address(array) == _interface_address(array) for array in samples)
    return _structure_address if sys.implementation.name == "cpython" and is_expected else _interface_address


address_of = _fastest()
"""``address_of(array)``: address of an array's first element."""


class _Header(ctypes.Structure):
    """Fields of ``PyArrayObject`` in NumPy's ABI."""

    _fields_ = (
        ("address", ctypes.c_ssize_t),
        ("_rank", ctypes.c_int),
        *[(name, ctypes.c_void_p) for name in ("_shape", "_strides", "_base", "_type")],
        ("flags", ctypes.c_int),
    )


def _structure_header(array: HostArray) -> Any:
    return _Header.from_address(id(array) + OBJECT_HEADER_BYTES)


class _InterfaceHeader(NamedTuple):
    address: int
    flags: int


def _interface_header(array: HostArray) -> Any:
    return _InterfaceHeader(_interface_address(array), array.flags.num)


_samples: list[HostArray] = [np.zeros(4, np.float32), np.zeros((2, 3))[:, 1:], np.broadcast_to(np.zeros(1), (2, 2))]
_is_expected = address_of is _structure_address and all(
    (_structure_header(array).address, _structure_header(array).flags) == _interface_header(array) for array in _samples
)
array_header: Callable[[HostArray], Any] = _structure_header if _is_expected else _interface_header
"""``array_header(array)``: object with its ``address`` and NumPy's ``flags``, in less time than either of them takes alone."""
array_header_at: Callable[[int], Any] | None = _Header.from_address if _is_expected else None
"""The same from ``id(array) + OBJECT_HEADER_BYTES``, without a Python call; None where the structure is not the expected one."""
