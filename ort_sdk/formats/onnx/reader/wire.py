"""Protobuf's wire format, read without protobuf, and without copying weights.

Importing protobuf and making its classes takes longer than to read a model of some thousand nodes this way, and more memory than
many a session. It would also copy every ``raw_data``; here a large one becomes the range of the file that it is in.

Read as protobuf reads: of a field that is there twice the last counts, messages are merged, lists may come packed or one by one,
an unknown field is skipped.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ort_sdk.api import HostArray, InvalidProtobuf
from ort_sdk.api.data_classes import NamedTuple
from ort_sdk.api.long_lists import MANY_ELEMENTS, NumberList

from .runs import FEW_ELEMENTS, decoded, fixed_run, varint_run
from .string_runs import ByteStrings

__all__ = [
    "MIN_PAYLOAD_BYTES",
    "Message",
    "Payload",
    "byte_string",
    "byte_strings",
    "choice",
    "declare",
    "elements",
    "float32",
    "int32",
    "int64",
    "message",
    "messages",
    "numbers",
    "payload",
    "text",
    "texts",
]

MIN_PAYLOAD_BYTES = 128
"""Smaller ``raw_data`` is copied: shapes and scalars, which cost nothing to copy."""

_MAX_DEPTH = 100  # protobuf's own
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_FIRST_TAG = 8
_WRAP = 1 << 64
_FEW_BYTES = 64
"""Numbers in fewer bytes are read one by one, which is faster than to set NumPy going."""
_SMALL_BYTES = 4096


class Payload(NamedTuple):
    """A range of the model's bytes."""

    start: int
    end: int


def _is_no_model(found: str) -> InvalidProtobuf:
    return InvalidProtobuf(f"Protobuf parsing failed: {found}. This is no ONNX model, or not all of one: get it anew")


class Message:
    """A message: its values are attributes, those of fields that are not there are protobuf's defaults."""

    readers: ClassVar[Mapping[int, Any]] = {}
    """Tag, which is a field's number and wire type → reads the field. Those that make up most of a model stand for themselves:
    the name of a text or of a number of 64 bits; name and class of a list of messages; name and None of a list of texts."""
    one_of: ClassVar[tuple[str, ...]] = ()
    """Names of fields of which one at most is there."""

    @classmethod
    def parse(cls, data: memoryview) -> Any:
        """Read a message.

        Raises:
            InvalidProtobuf: the bytes are no message, or messages are nested too deep.
        """
        found = cls()
        try:
            _View(data, 0).read(found, 0, len(data), 1)
        except IndexError:
            raise _is_no_model(f"the last of {len(data)} bytes is in the middle of a field") from None
        return found

    def HasField(self, name: str) -> bool:  # noqa: N802 - protobuf's name
        """Whether a field that is no list is there."""
        return name in self.__dict__

    def WhichOneof(self, _group: str) -> str | None:  # noqa: N802 - protobuf's name
        """Name of the one field that is there of those that exclude each other."""
        return next((name for name in self.one_of if name in self.__dict__), None)


class _Piece:
    """Bytes of the model, or a copy of some.

    Args:
        data: the bytes.
        offset: that of the first one in the model.
    """

    __slots__ = ("data", "offset")

    def __init__(self, data: memoryview | bytes, offset: int) -> None:
        self.data = data
        self.offset = offset

    def read(self, target: Message, position: int, end: int, depth: int) -> None:
        """Read the fields between two offsets into a message.

        Raises:
            IndexError: the last field goes beyond the bytes.
        """
        if depth > _MAX_DEPTH:
            raise InvalidProtobuf(f"Protobuf parsing failed: messages are nested deeper than {_MAX_DEPTH} levels")
        data, values, reader_of = self.data, target.__dict__, target.readers.get
        value: Any
        while position < end:
            tag, value = data[position], data[position + 1]
            position += 2
            if tag >= 0x80:
                tag, position = self.varint(position - 2)
                value = data[position]
                position += 1
            read = reader_of(tag)
            if tag & 7 == _DELIMITED:
                if value >= 0x80:
                    value, position = self.varint(position - 1)
                stop = position + value
                if stop > end or read is None:
                    self.check_unknown(tag, stop)
                elif read.__class__ is str:
                    values[read] = str(data[position:stop], "utf-8", "surrogateescape")
                elif read.__class__ is ByteStrings:
                    stop = read.read(values, data, tag, position, stop, end)
                elif read.__class__ is tuple:
                    name, cls = read
                    if cls is None:
                        value = str(data[position:stop], "utf-8", "surrogateescape")
                    else:
                        value = cls()
                        self.read(value, position, stop, depth + 1)
                    if name in values:
                        values[name].append(value)
                    else:
                        values[name] = [value]
                else:
                    read(values, self, position, stop, depth)
                position = stop
            else:
                if tag & 7 or value >= 0x80:
                    value, position = self._number(tag & 7, position - 1)
                if read is None:
                    self.check_unknown(tag, position)
                elif read.__class__ is str:
                    values[read] = value - _WRAP if value >> 63 else value
                elif read.__class__ is _Numbers:
                    position = read.read(values, value, data, tag, position, end)
                else:
                    read(values, value)
        if position > end:
            raise self.malformed(position, f"the end of a field whose message ends at byte {self.offset + end}")

    def check_unknown(self, tag: int, position: int) -> None:
        """Refuse a field that is none, before an offset; others that are not known are skipped."""
        if tag < _FIRST_TAG:
            raise self.malformed(position, "a field number of 0")

    def _number(self, kind: int, position: int) -> tuple[Any, int]:
        """A number, or the bytes of a float, and where it ends."""
        if kind == _VARINT:
            return self.varint(position)
        if kind not in _FIXED_BYTES:
            raise self.malformed(position, f"wire type {kind}, which ONNX does not use")
        end = position + _FIXED_BYTES[kind]
        if end > len(self.data):
            raise IndexError(end)
        return self.data[position:end], end

    def varint(self, position: int) -> tuple[int, int]:
        """The number at an offset, and where it ends."""
        first = self.data[position]
        second = self.data[position + 1] if first >= 0x80 else 0
        if first >= 0x80 > second:  # as most that are asked for
            return first - 0x80 + (second << 7), position + 2
        value = 0
        for index in range(10):
            byte = self.data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position + index + 1
        raise self.malformed(position, "a number that does not end")

    def varints(self, start: int, stop: int) -> HostArray:
        """Numbers one behind the other, as uint64."""
        if stop - start < _FEW_BYTES:
            found = []
            while start < stop:
                value, start = self.varint(start)
                found.append(value)
            return np.array(found, np.uint64)
        content = np.frombuffer(self.data, np.uint8, stop - start, start)
        ends = np.flatnonzero(content < 0x80)
        lengths = np.diff(ends, prepend=-1)
        if content[-1] >= 0x80 or lengths.max() > 10:
            raise self.malformed(start, "a number that does not end")
        return decoded(content, ends, lengths)

    def malformed(self, position: int, found: str) -> InvalidProtobuf:
        """The error for what was found at an offset."""
        return _is_no_model(f"at byte {self.offset + position} there is {found}")


class _View(_Piece):
    """Bytes that are not copied but for small messages, since single bytes are read faster from ``bytes``."""

    __slots__ = ()

    def read(self, target: Message, position: int, end: int, depth: int) -> None:
        """As in ``_Piece``."""
        if end - position < _SMALL_BYTES:
            _Piece(bytes(self.data[position:end]), self.offset + position).read(target, 0, end - position, depth)
        else:
            super().read(target, position, end, depth)


_ReadBytes = Callable[[dict[str, Any], _Piece, int, int, int], None]
"""Takes the values of a message, bytes, where in them the field's content begins and ends, and how deep the message is nested."""
_ReadNumber = Callable[[dict[str, Any], Any], None]
"""Takes the values of a message, and a number that is no float, or the bytes of a float."""


class _Field(NamedTuple):
    """How a field is read."""

    default: Any
    read: _ReadBytes | ByteStrings | str | tuple[str, type[Message] | None] | None = None
    """Reads its content behind a length, or stands for that; see ``Message.readers``."""
    wire_type: int = _VARINT
    read_number: _ReadNumber | _Numbers | str | None = None
    """Reads it as a number of that wire type, or stands for that."""


Kind = Callable[[str], _Field]
"""Makes a field of some name."""


def declare(cls: type[Message], fields: Mapping[int, tuple[str, Kind]], one_of: tuple[str, ...] = ()) -> None:
    """Give a class of messages its fields.

    Args:
        cls: the class.
        fields: number → name and kind.
        one_of: names of those of which only the last to come is there.
    """
    table: dict[int, Any] = {}
    for number, (name, kind) in fields.items():
        found = kind(name)
        others = tuple(each for each in one_of if each != name) if name in one_of else ()
        if found.read is not None:
            table[number << 3 | _DELIMITED] = _alone(found.read, others)
        if found.read_number is not None:
            table[number << 3 | found.wire_type] = _alone(found.read_number, others)
        setattr(cls, name, found.default)
    cls.readers, cls.one_of = table, one_of


def _alone(read: Any, others: tuple[str, ...]) -> Any:
    """Reads a field, and clears others."""
    if not others:
        return read

    def read_alone(values: dict[str, Any], content: Any, *span: int) -> None:
        for other in others:
            values.pop(other, None)
        if not isinstance(read, str):
            read(values, content, *span)
        elif span:
            values[read] = str(content.data[span[0] : span[1]], "utf-8", "surrogateescape")
        else:
            values[read] = _signed64(content)

    return read_alone


def text(name: str) -> _Field:
    """Text; what is not UTF-8 becomes surrogate escapes."""
    return _Field("", name)


def texts(name: str) -> _Field:
    """List of texts."""
    return _Field((), (name, None))


def byte_string(name: str) -> _Field:
    """Bytes."""

    def read(values: dict[str, Any], piece: _Piece, start: int, stop: int, _depth: int) -> None:
        values[name] = bytes(piece.data[start:stop])

    return _Field(b"", read)


def payload(name: str) -> _Field:
    """Bytes, or the ``Payload`` that they are in if they are many."""

    def read(values: dict[str, Any], piece: _Piece, start: int, stop: int, _depth: int) -> None:
        is_large = stop - start >= MIN_PAYLOAD_BYTES
        if name in values and isinstance(values[name], Payload) != is_large:
            raise InvalidProtobuf(f"Protobuf parsing failed: tensor '{values.get('name', '')}' has {name} twice")
        values[name] = Payload(piece.offset + start, piece.offset + stop) if is_large else bytes(piece.data[start:stop])

    return _Field(b"", read)


def byte_strings(name: str) -> _Field:
    """List of bytes."""
    return _Field((), ByteStrings(name))


def message(cls: type[Message]) -> Kind:
    """A message."""

    def kind(name: str) -> _Field:
        def read(values: dict[str, Any], piece: _Piece, start: int, stop: int, depth: int) -> None:
            found = values.get(name)
            if found is None:
                found = values[name] = cls()
            piece.read(found, start, stop, depth + 1)

        return _Field(cls(), read)

    return kind


def messages(cls: type[Message]) -> Kind:
    """List of messages."""
    return lambda name: _Field((), (name, cls))


def int64(name: str) -> _Field:
    """A number of 64 bits."""
    return _Field(0, read_number=name)


def int32(name: str) -> _Field:
    """A number of 32 bits; of a longer one the low bits count."""
    return _number(name, "i4", 0)


def float32(name: str) -> _Field:
    """A float of 32 bits."""
    return _number(name, "<f4", 0.0)


def _number(name: str, dtype: str, default: Any) -> _Field:
    wire_type, convert = _ELEMENTS[dtype]

    def read(values: dict[str, Any], value: Any) -> None:
        values[name] = convert(value)

    return _Field(default, wire_type=wire_type, read_number=read)


def _signed64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_ELEMENTS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "i4": (_VARINT, lambda value: _signed64((value & 0xFFFFFFFF) << 32) >> 32),
    "i8": (_VARINT, _signed64),
    "u8": (_VARINT, int),
    "<f4": (_FIXED32, lambda content: struct.unpack("<f", content)[0]),
    "<f8": (_FIXED64, lambda content: struct.unpack("<d", content)[0]),
}
"""dtype → wire type of one element, and what makes Python's number of it."""


def choice(last: int) -> Kind:
    """An enumeration from 0 to a last value; one that it does not have counts as none."""

    def kind(name: str) -> _Field:
        def read(values: dict[str, Any], value: int) -> None:
            if value <= last:
                values[name] = value

        return _Field(0, wire_type=_VARINT, read_number=read)

    return kind


class _Numbers:
    """Reads a list of Python's numbers that are not packed.

    Args:
        name: of the field.
        dtype: of an element.
    """

    def __init__(self, name: str, dtype: str) -> None:
        self._name, self._dtype = name, dtype
        self._wire_type, self._convert = _ELEMENTS[dtype]

    def read(self, values: dict[str, Any], value: Any, data: memoryview | bytes, tag: int, position: int, end: int) -> int:
        """Read one, and those of the same field that follow it, if there are many; returns where they end."""
        if self._convert is not _signed64 or value >> 63:
            value = self._convert(value)
        numbers = values.get(self._name)
        if numbers.__class__ is list:
            numbers.append(value)
        else:
            numbers = values[self._name] = [*(numbers or ()), value]
        if len(numbers) < FEW_ELEMENTS or position >= end or data[position] != tag or tag >= 0x80:
            return position
        run = varint_run if self._wire_type == _VARINT else functools.partial(fixed_run, dtype=self._dtype)
        pieces, position = run(data, tag, position, end)
        if len(numbers) == FEW_ELEMENTS and sum(map(len, pieces)) >= MANY_ELEMENTS:
            values[self._name] = NumberList(_joined([np.array(numbers, self._dtype), *pieces], self._dtype))
        else:
            numbers += _joined(pieces, self._dtype).tolist()
        return position


def _joined(pieces: list[HostArray], dtype: str) -> HostArray:
    return np.concatenate(pieces or [np.empty(0, dtype)], dtype=dtype, casting="unsafe")  # narrow ones keep the low bits


def numbers(dtype: str) -> Kind:
    """List of Python's numbers."""

    def kind(name: str) -> _Field:
        def read(values: dict[str, Any], piece: _Piece, start: int, stop: int, _depth: int) -> None:
            found, known = _packed(piece, start, stop, dtype), values.get(name)
            if known is None and len(found) >= MANY_ELEMENTS:
                values[name] = NumberList(found.copy())  # floats are a view of the file
            elif known.__class__ is list:
                known += found.tolist()
            else:
                values[name] = [*(known or ()), *found.tolist()]

        return _Field((), read, _ELEMENTS[dtype][0], _Numbers(name, dtype))

    return kind


def elements(dtype: str) -> Kind:
    """Elements of a tensor: an array if they come packed in one piece, as they should, else a list."""
    wire_type, convert = _ELEMENTS[dtype]

    def kind(name: str) -> _Field:
        def read(values: dict[str, Any], piece: _Piece, start: int, stop: int, _depth: int) -> None:
            found = _packed(piece, start, stop, dtype)
            if name in values:
                as_list(values).extend(found.tolist())
            else:
                values[name] = found

        def read_one(values: dict[str, Any], value: Any) -> None:
            as_list(values).append(convert(value))

        def as_list(values: dict[str, Any]) -> list[Any]:
            found = values.get(name)
            if not isinstance(found, list):
                found = values[name] = [] if found is None else found.tolist()
            return found

        return _Field((), read, wire_type, read_one)

    return kind


def _packed(piece: _Piece, start: int, stop: int, dtype: str) -> HostArray:
    if not dtype.startswith("<f"):
        return piece.varints(start, stop).astype(dtype)  # narrow ones keep the low bits, as protobuf has it
    size = int(dtype[-1])
    if (stop - start) % size:
        raise piece.malformed(start, f"a list of {stop - start} bytes of numbers of {size}")
    return np.frombuffer(piece.data, dtype, (stop - start) // size, start)
