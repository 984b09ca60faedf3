"""A scan of a model's wire format that takes the weights out before protobuf sees them.

Protobuf copies every ``raw_data`` it parses. The scan walks the messages that lead to tensors (model, graph, node, attribute,
function, sparse tensor), skips everything else by its length, and gives a small copy of the model in which each large
``raw_data`` is replaced by the range of the file it is in. The range travels in ``TensorProto.segment``, which ONNX reserves
and no reader supports.
"""

from __future__ import annotations

from collections.abc import Iterator

from ort_sdk.api import InvalidGraph, InvalidProtobuf
from ort_sdk.api.data_classes import dataclass

__all__ = ["MIN_PAYLOAD_BYTES", "StrippedModel", "strip_payloads"]

MIN_PAYLOAD_BYTES = 128
"""Smaller ``raw_data`` stays in the message: shapes and scalars, which cost nothing to copy."""

_MAX_DEPTH = 100  # protobuf's own
_MAX_LENGTH = 2**31 - 1  # protobuf's own
_MAX_VARINT_BYTES = 10
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}


@dataclass(frozen=True, slots=True)
class StrippedModel:
    """A model without its weights."""

    message: bytes | memoryview
    """``ModelProto`` on the wire; a view of the input if nothing was taken out."""
    payloads: frozenset[tuple[int, int]]
    """Ranges (first byte, end) that ``segment`` fields of the message stand for."""


class _Message:
    """Kind of message: which of its fields lead to tensors."""

    __slots__ = ("children", "dropped", "payload_tag", "segment_tag")

    def __init__(self) -> None:
        self.children: dict[int, _Message] = {}
        self.dropped: frozenset[int] = frozenset()
        self.payload_tag = -1
        self.segment_tag = -1


def _tag(field: int) -> int:
    return field << 3 | _LENGTH_DELIMITED


def _model_message() -> _Message:
    model, graph, function, node, attribute, sparse, tensor = (_Message() for _ in range(7))
    model.children = {_tag(7): graph, _tag(25): function}
    model.dropped = frozenset({_tag(20)})  # training_info: inference does not use it
    graph.children = {_tag(1): node, _tag(5): tensor, _tag(15): sparse}
    function.children = {_tag(7): node, _tag(11): attribute}
    node.children = {_tag(5): attribute}
    attribute.children = {_tag(5): tensor, _tag(6): graph, _tag(10): tensor, _tag(11): graph, _tag(22): sparse, _tag(23): sparse}
    sparse.children = {_tag(1): tensor, _tag(2): tensor}
    tensor.payload_tag = _tag(9)
    tensor.segment_tag = _SEGMENT_TAG
    return model


_SEGMENT_TAG = _tag(3)
_MODEL = _model_message()

_Piece = bytes | memoryview


def strip_payloads(data: memoryview) -> StrippedModel:
    """Take the large ``raw_data`` fields out of a serialized ``ModelProto``.

    Args:
        data: bytes of the model; read only along the way to tensors.

    Raises:
        InvalidProtobuf: malformed wire data on that way, or messages nested too deep.
        InvalidGraph: a tensor stored in segments.
    """
    scanner = _Scanner(data)
    pieces = scanner.strip(0, len(data), _MODEL, 0)
    message = data if pieces is None else b"".join(pieces)
    return StrippedModel(message, frozenset(scanner.payloads))


class _Scanner:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.payloads: list[tuple[int, int]] = []

    def strip(self, start: int, end: int, kind: _Message, depth: int) -> list[_Piece] | None:
        """The message between two positions without payloads, in pieces; None if it has none."""
        if depth > _MAX_DEPTH:
            raise InvalidProtobuf(f"Protobuf parsing failed: messages are nested deeper than {_MAX_DEPTH} levels")
        pieces: list[_Piece] = []
        kept = start
        for tag, field_start, payload_start, payload_end in self._fields(start, end, kind.segment_tag):
            replacement = self._replace(tag, payload_start, payload_end, kind, depth)
            if replacement is not None:
                pieces.append(self._data[kept:field_start])
                pieces.extend(replacement)
                kept = payload_end
        if not pieces:
            return None
        pieces.append(self._data[kept:end])
        return pieces

    def _replace(self, tag: int, start: int, end: int, kind: _Message, depth: int) -> list[_Piece] | None:
        """What stands for a field in the copy; None for the field as it is."""
        if tag == kind.payload_tag:
            self.payloads.append((start, end))
            return [_segment(start, end)]
        if tag == kind.segment_tag:
            raise InvalidGraph(
                f"the tensor at byte {start} is a segment of a tensor, which is not supported; store it in one piece"
            )
        if tag in kind.dropped:
            return []
        child = kind.children.get(tag)
        pieces = None if child is None else self.strip(start, end, child, depth + 1)
        if pieces is None:
            return None
        return [_varint(tag) + _varint(sum(map(len, pieces))), *pieces]

    def _fields(self, start: int, end: int, wanted: int) -> Iterator[tuple[int, int, int, int]]:
        """Length-delimited fields that may hold a payload, and wanted ones: tag, start of the field, start and end of content."""
        data = self._data
        position = start
        while position < end:
            field_start = position
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = self._read_varint(field_start, end)
            if tag < 8:
                raise self._malformed(field_start, "a field number of 0")
            if tag & 7 != _LENGTH_DELIMITED:
                position = self._skip_scalar(tag & 7, position, end)
                continue
            if position < end and data[position] < 0x80:
                length = data[position]
                position += 1
            else:
                length, position = self._read_varint(position, end)
            content_end = position + length
            if length > _MAX_LENGTH:
                raise self._malformed(field_start, f"a field of {length} bytes; larger ones than 2 GiB must be external data")
            if content_end > end:
                raise self._malformed(field_start, f"a field of {length} bytes, which is more than there are")
            if length >= MIN_PAYLOAD_BYTES or tag == wanted:
                yield tag, field_start, position, content_end
            position = content_end

    def _read_varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for index in range(min(_MAX_VARINT_BYTES, end - position)):
            byte = self._data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, position + index + 1
        raise self._malformed(position, "a number that does not end")

    def _skip_scalar(self, wire_type: int, position: int, end: int) -> int:
        if wire_type == 0:
            return self._read_varint(position, end)[1]
        if wire_type not in _FIXED_BYTES:
            raise self._malformed(position, f"wire type {wire_type}, which ONNX does not use")
        position += _FIXED_BYTES[wire_type]
        if position > end:
            raise self._malformed(position, "a number that does not end")
        return position

    def _malformed(self, position: int, found: str) -> InvalidProtobuf:
        return InvalidProtobuf(f"Protobuf parsing failed: at byte {position} of {len(self._data)} there is {found}")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _segment(start: int, end: int) -> bytes:
    content = b"\x08" + _varint(start) + b"\x10" + _varint(end)
    return _varint(_SEGMENT_TAG) + _varint(len(content)) + content
