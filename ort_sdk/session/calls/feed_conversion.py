"""Feed conversion: values a caller gives → values a plan takes, one converter per declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Fail, HostArray, InvalidArgument, TensorElementType
from ort_sdk.api import NotImplemented as OrtNotImplemented
from ort_sdk.session.values.ort_value import OrtValue
from ort_sdk.session.values.type_strings import type_of_value

__all__ = ["Converter", "converter"]

Converter = Callable[[Any], Any]
"""Gives the converted value, or raises for one of another type."""


def converter(type_string: str | None, name: str) -> Converter:
    """Converter for a declared type (``tensor(float)``, ``seq(map(int64,tensor(float)))``).

    Args:
        type_string: of the input; None for an input without one, whose values are taken as they come.
        name: the input, for messages.
    """
    if type_string is None:
        return _unwrapped
    kind, _, rest = type_string.partition("(")
    content = rest.removesuffix(")")
    if kind == "tensor":
        return _TensorConverter(TensorElementType.from_onnx_name(content), type_string, name)
    if kind == "seq":
        return _SequenceConverter(converter(content, name), type_string, name)
    if kind == "optional":
        inner = converter(content, name)
        return lambda value: None if _unwrapped(value) is None else inner(value)
    if kind == "map":
        return _MapConverter(type_string, name)
    return _Refuser(type_string, name)


def _unwrapped(value: Any) -> Any:
    return value.value_on(CPU_DEVICE) if isinstance(value, OrtValue) else value


class _TensorConverter:
    """Arrays of the declared type; lists and scalars that can become one without loss of kind."""

    def __init__(self, element_type: TensorElementType, type_string: str, name: str) -> None:
        self._element_type = element_type
        self._dtype = element_type.numpy_dtype
        self._type_string = type_string
        self._name = name

    def __call__(self, value: Any) -> Any:
        if isinstance(value, OrtValue):
            return self._of_ort_value(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._of_array(np.asarray(value))
        if isinstance(value, (list, tuple, bool, int, float, complex, str, bytes)):
            return self._of_python(value)
        if isinstance(value, dict):
            raise _unexpected(value, self._type_string)
        if hasattr(type(value), "__array__"):
            return self._of_array(self._asked_array(value))
        raise InvalidArgument(
            f"Unable to handle object of type {type(value)} for input '{self._name}'; "
            f"feed a NumPy array, a list or an OrtValue of {self._type_string}"
        )

    def _asked_array(self, value: Any) -> HostArray:
        try:
            return np.asarray(value)
        except Exception as error:
            raise InvalidArgument(
                f"Unable to handle object of type {type(value)} for input '{self._name}': its __array__ raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def _of_ort_value(self, value: OrtValue) -> Any:
        if not value.has_value():
            raise Fail(f"Missing Input: {self._name}: the OrtValue fed holds nothing")
        if not value.is_tensor() or value.data_type() != self._type_string:
            raise _unexpected_type(value.data_type(), self._type_string)
        return self._of_array(value.value) if value.device == CPU_DEVICE else value.value

    def _of_array(self, array: HostArray) -> HostArray:
        if self._element_type is TensorElementType.STRING and array.dtype.kind in "UTOS":
            try:
                return _texts(array)
            except UnicodeDecodeError as error:
                raise InvalidArgument(
                    f"input '{self._name}' is {self._type_string}, and holds bytes that are no UTF-8"
                ) from error
        is_declared = array.dtype == self._dtype
        if self._dtype.hasobject or not (is_declared or array.dtype.newbyteorder("=") == self._dtype):
            raise _unexpected(array, self._type_string)
        is_plain = is_declared and array.flags.c_contiguous and array.flags.aligned
        return array if is_plain else array.astype(self._dtype, order="C")

    def _of_python(self, value: Any) -> HostArray:
        try:
            array = np.array(value)
            if self._element_type is TensorElementType.STRING:
                if array.dtype.kind in "US":
                    return _texts(array)
                if array.size == 0:
                    return array.astype(object)
            elif array.dtype.kind == "f" and _is_integer(self._element_type):
                return _integers(array, self._dtype)
            elif array.dtype.kind == "f":
                return array.astype(self._dtype)
            elif array.dtype == self._dtype:
                return array
            elif array.dtype.kind in "biu":
                # From the value itself, so that integers beyond int64 and out of range are seen.
                return np.array(value, dtype=self._dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._no_tensor(value, str(error)) from error
        raise self._no_tensor(value, f"its elements are {array.dtype}")

    def _no_tensor(self, value: Any, reason: str) -> InvalidArgument:
        return InvalidArgument(
            f"Could not create tensor from given input list: input '{self._name}' is {self._type_string}, "
            f"fed was a {type(value).__name__}: {reason}"
        )


def _is_integer(element_type: TensorElementType) -> bool:
    return element_type is TensorElementType.BOOL or element_type.onnx_name.startswith(("int", "uint"))


def _integers(array: HostArray, dtype: np.dtype[Any]) -> HostArray:
    """Whole floating-point numbers as integers; ValueError for fractions and numbers out of range."""
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    if not np.array_equal(converted.astype(np.float64), array):
        raise ValueError(f"not all its numbers are whole and in the range of {dtype}")
    return converted


def _texts(array: HostArray) -> HostArray:
    """Array of ``str``, whatever the entries are; bytes are UTF-8."""
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8").astype(object)
    if array.dtype.kind in "UT":
        return array.astype(object)
    flat = [_text(entry) for entry in array.reshape(-1).tolist()]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(array.shape)


def are_texts(array: HostArray) -> bool:
    """Whether all elements of an array of objects are ``str``, and no class derived from it."""
    if array.size == 1:
        return type(array.item()) is str
    return list(map(type, array.reshape(-1).tolist())).count(str) == array.size


def _text(entry: Any) -> str:
    return entry.decode() if isinstance(entry, bytes) else str(entry)


class _SequenceConverter:
    def __init__(self, element: Converter, type_string: str, name: str) -> None:
        self._element = element
        self._type_string = type_string
        self._name = name

    def __call__(self, value: Any) -> Any:
        value = _unwrapped(value)
        if not isinstance(value, (list, tuple)):
            raise _unexpected(value, self._type_string)
        return [self._element(element) for element in value]


class _MapConverter:
    def __init__(self, type_string: str, name: str) -> None:
        self._type_string = type_string
        self._name = name
        key, _, content = type_string.removeprefix("map(").removesuffix(")").partition(",")
        self._key_types = (str,) if key == "string" else (int, np.integer)
        self._value_types = (str,) if "string" in content else (int, float, np.number, np.ndarray)

    def __call__(self, value: Any) -> Any:
        value = _unwrapped(value)
        if not isinstance(value, dict):
            raise _unexpected(value, self._type_string)
        for key, entry in value.items():
            if not isinstance(key, self._key_types) or not isinstance(entry, self._value_types):
                raise InvalidArgument(
                    f"Unexpected input data type for input '{self._name}': expected: ({self._type_string}), "
                    f"found the entry {key!r}: {entry!r}"
                )
        return value


class _Refuser:
    def __init__(self, type_string: str, name: str) -> None:
        self._text = f"input '{name}' is {type_string}, which cannot be fed; feed the dense tensor of a model that takes one"

    def __call__(self, value: Any) -> Any:
        raise OrtNotImplemented(self._text)


def _unexpected(value: Any, expected: str) -> InvalidArgument:
    return _unexpected_type(type_of_value(value), expected)


def _unexpected_type(actual: str, expected: str) -> InvalidArgument:
    return InvalidArgument(f"Unexpected input data type. Actual: ({actual}) , expected: ({expected})")
