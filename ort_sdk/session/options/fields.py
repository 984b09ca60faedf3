"""Checked properties of the options classes: a wrong type is a TypeError, as ONNX Runtime's bindings have it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, TypeVar, overload

from ort_sdk.api import Fail

__all__ = ["ConfigEntries", "OptionField", "Options", "flag", "member", "number", "text"]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=IntEnum)

MAX_KEY_LENGTH = 1024
MAX_VALUE_LENGTH = 8192


class Options:
    """Base of classes whose properties are ``OptionField``."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def _on_set(self, name: str, value: Any) -> None:
        """Called when a property got a value, for subclasses that act on it."""


class OptionField(Generic[_T]):
    """One property with a default and a type.

    Args:
        default: value until one is set.
        convert: gives the value to keep, or raises TypeError.
        expected: what is allowed, for the message.
        doc: what the property means.
    """

    def __init__(self, default: _T, convert: Callable[[Any], _T], expected: str, doc: str) -> None:
        self._default = default
        self._convert = convert
        self._expected = expected
        self._name = ""
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> OptionField[_T]: ...
    @overload
    def __get__(self, instance: Options, owner: type) -> _T: ...
    def __get__(self, instance: Options | None, owner: type) -> OptionField[_T] | _T:
        if instance is None:
            return self
        value: _T = instance._values.get(self._name, self._default)
        return value

    def __set__(self, instance: Options, value: Any) -> None:
        try:
            instance._values[self._name] = self._convert(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"incompatible function arguments: {type(instance).__name__}.{self._name} takes {self._expected}, got {value!r}"
            ) from None
        instance._on_set(self._name, instance._values[self._name])


def flag(default: bool, doc: str) -> OptionField[bool]:
    """A property that is true or false."""
    return OptionField(default, _to_bool, "a bool", doc)


def number(default: int, doc: str) -> OptionField[int]:
    """A property that is a 32-bit integer."""
    return OptionField(default, _to_int32, "an int of 32 bits", doc)


def text(default: str, doc: str) -> OptionField[str]:
    """A property that is text."""
    return OptionField(default, _to_text, "a str", doc)


def member(default: _E, doc: str) -> OptionField[_E]:
    """A property that is a member of an enumeration."""
    kind = type(default)

    def convert(value: Any) -> _E:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return OptionField(default, convert, f"a member of {kind.__name__}", doc)


def _to_bool(value: Any) -> bool:
    if value is not None and not hasattr(type(value), "__bool__"):
        raise TypeError
    return bool(value)


def _to_int32(value: Any) -> int:
    """An integer of 32 bits; TypeError for anything else."""
    converted = operator.index(value)
    if not -(2**31) <= converted < 2**31:
        raise TypeError
    return converted


def _to_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    return value


class ConfigEntries(dict[str, str]):
    """Config entries of a session or a run, with ONNX Runtime's limits.

    Args:
        owner: class name for messages.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner

    def __copy__(self) -> ConfigEntries:
        duplicate = ConfigEntries(self._owner)
        duplicate.update(self)
        return duplicate

    def add(self, key: str, value: str) -> None:
        """Set one entry.

        Raises:
            TypeError: key or value is no text.
            Fail: one of them is too long, or the key is empty.
        """
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"incompatible function arguments: config entries are pairs of str, got {key!r} and {value!r}")
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            raise Fail(f"Config key is empty or longer than maximum length {MAX_KEY_LENGTH}: it has {len(key)} characters")
        if len(value) > MAX_VALUE_LENGTH:
            raise Fail(f"Config value is longer than maximum length: {MAX_VALUE_LENGTH}; key '{key}' has {len(value)} characters")
        self[key] = value

    def read(self, key: str) -> str:
        """One entry.

        Raises:
            Fail: there is none.
        """
        if key not in self:
            raise Fail(f"{self._owner} does not have configuration with key: {key}")
        return self[key]
