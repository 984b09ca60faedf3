"""FlatBuffers, built from the leaves up."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.optional_packages import needs_package

__all__ = ["Field", "FileBuilder", "f32", "flag", "i8", "i32", "i64", "offset", "u8", "u32"]

Field = tuple[int, str, Any]
"""Slot, kind of number, value; None for an absent field."""


def offset(slot: int, value: int | None) -> Field:
    """A field that refers to a string, vector or table written before."""
    return slot, "offset", value


def u8(slot: int, value: int) -> Field:
    """An unsigned byte."""
    return slot, "Uint8", value


def i8(slot: int, value: int) -> Field:
    """A signed byte."""
    return slot, "Int8", value


def i32(slot: int, value: int) -> Field:
    """A signed integer of 32 bits."""
    return slot, "Int32", value


def flag(slot: int, value: bool) -> Field:
    """A truth value."""
    return slot, "Bool", value


def u32(slot: int, value: int) -> Field:
    """An unsigned integer of 32 bits."""
    return slot, "Uint32", value


def i64(slot: int, value: int) -> Field:
    """A signed integer of 64 bits."""
    return slot, "Int64", value


def f32(slot: int, value: float) -> Field:
    """A float of 32 bits."""
    return slot, "Float32", value


class FileBuilder:
    """One file being built. What a part refers to must be written before it.

    Args:
        expected_bytes: size of the file as far as it is known, so that memory is not moved while it grows.
    """

    def __init__(self, expected_bytes: int) -> None:
        with needs_package("flatbuffers", "writing a model in ORT format"):
            from flatbuffers import Builder

        self._builder: Any = Builder(expected_bytes)

    def text(self, text: str) -> int:
        """A string, written once however often it is asked for; surrogate escapes become the bytes they stand for."""
        return int(self._builder.CreateSharedString(text, errors="surrogateescape"))

    def texts(self, texts: Sequence[str]) -> int:
        """A vector of strings."""
        return self.references([self.text(text) for text in texts])

    def references(self, offsets: Sequence[int]) -> int:
        """A vector of tables or strings."""
        builder = self._builder
        builder.StartVector(4, len(offsets), 4)
        for each in reversed(offsets):
            builder.PrependUOffsetTRelative(each)
        return int(builder.EndVector())

    def numbers(self, values: Sequence[float], dtype: str) -> int:
        """A vector of numbers of a little-endian NumPy type."""
        return self.items(np.array(values, dtype=dtype))

    def items(self, items: HostArray, alignment: int = 0) -> int:
        """A vector of numbers or structs.

        Args:
            items: contiguous, one-dimensional, little endian.
            alignment: of the first item in the file, in bytes; the items' own by default.
        """
        builder = self._builder
        size = items.dtype.itemsize
        builder.StartVector(size, len(items), alignment or max(size if items.dtype.names is None else 4, 1))
        data = items.view(np.uint8).data if items.size else b""
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())

    def table(self, slots: type[IntEnum], *fields: Field) -> int:
        """A table; integers equal to 0 and absent references are left out.

        Args:
            slots: all slots of its kind.
            fields: its fields.
        """
        builder = self._builder
        builder.StartObject(max(slots) + 1)
        for slot, kind, value in fields:
            if kind == "offset":
                builder.PrependUOffsetTRelativeSlot(int(slot), value or 0, 0)
            else:
                # Without a default a float is always written, for -0.0 equals 0 and is another number.
                getattr(builder, f"Prepend{kind}Slot")(int(slot), value, None if kind == "Float32" else 0)
        return int(builder.EndObject())

    def finish(self, root: int, identifier: bytes) -> memoryview:
        """The whole file, not copied."""
        head = self._builder.Finish(root, file_identifier=identifier)
        return memoryview(self._builder.Bytes)[head:]
