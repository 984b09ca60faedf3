"""Reading FlatBuffers of doubtful origin: every offset, table, vector and string is checked before it is followed."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ort_sdk.api import Fail, HostArray
from ort_sdk.api.long_lists import MANY_ELEMENTS, CodedList, NumberList
from ort_sdk.formats.few_strings import FewStrings, codes_of

__all__ = ["FlatBuffer", "Table"]

MAX_DEPTH = 64
"""Deepest nesting of tables, as FlatBuffers' own verifier has it."""
MAX_TABLES = 2_000_000
"""Most tables read: FlatBuffers' own verifier allows half as many in a file, and some are read twice."""
READS_PER_BYTE = 4
"""How often a byte may be read on average: some tables are read twice, and writers may let small vectors share their bytes."""
SPARE_BYTES = 1 << 16

_U8, _I8, _U16 = struct.Struct("<B"), struct.Struct("<b"), struct.Struct("<H")
_U32, _I32 = struct.Struct("<I"), struct.Struct("<i")
_I64, _F32 = struct.Struct("<q"), struct.Struct("<f")
_OFFSET_BYTES = 4
_SHORT_BYTES = 1 << 8
"""Length of a string from which on it is no name of few."""


class FlatBuffer:
    """A whole buffer.

    What is read counts against a budget of a few times the buffer's size, strings once each. Offsets that share or overlap what
    they point to, which no writer makes, are thereby kept from making a small file large.

    Args:
        data: the bytes.
    """

    __slots__ = ("_budget", "_strings", "_tables", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._strings: dict[int, str] = {}
        self._tables = 0
        self._budget = READS_PER_BYTE * len(data) + SPARE_BYTES

    def root(self, identifier: bytes) -> Table:
        """The root table.

        Raises:
            Fail: the identifier is another one, or the table is not inside the buffer.
        """
        if len(self.data) < 2 * _OFFSET_BYTES:
            raise refusal(f"the file has {len(self.data)} bytes, which is too few")
        found = bytes(self.data[4:8])
        if found != identifier:
            raise refusal(f"bytes 4 to 7 are {found!r} instead of the identifier {identifier!r}")
        return Table(self, self.number(_U32, 0, "root"), 1, "root")

    def number(self, code: struct.Struct, at: int, where: str) -> Any:
        """One number, little endian."""
        self.check(at, code.size, where)
        return code.unpack_from(self.data, at)[0]

    def check(self, at: int, length: int, where: str) -> None:
        """Refuse a range that is not inside the buffer.

        Raises:
            Fail: it is not.
        """
        if at < 0 or at + length > len(self.data):
            raise refusal(f"{where} leads to bytes {at} to {at + length} of a file of {len(self.data)}")

    def charge(self, length: int, where: str) -> None:
        """Take bytes off the budget.

        Raises:
            Fail: it is used up.
        """
        self._budget -= length
        if self._budget < 0:
            raise refusal(f"{where}: the file's parts overlap, so that it holds more than its {len(self.data)} bytes")

    def enter_table(self, depth: int, where: str) -> None:
        """Count a table.

        Raises:
            Fail: there are too many, or they are nested too deeply.
        """
        self._tables += 1
        if depth > MAX_DEPTH or self._tables > MAX_TABLES:
            limit = f"{MAX_DEPTH} nested tables" if depth > MAX_DEPTH else f"{MAX_TABLES} tables"
            raise refusal(f"{where}: more than {limit}, the most that is allowed")

    def follow(self, at: int, where: str) -> int:
        """Where the offset at a position leads to."""
        offset: int = self.number(_U32, at, where)
        if offset == 0:
            raise refusal(f"{where} is an offset of 0 at byte {at}")
        return at + offset

    def vector(self, at: int, item_bytes: int, where: str) -> tuple[int, int]:
        """Position of a vector's first item, and the number of items."""
        count: int = self.number(_U32, at, where)
        first = at + _OFFSET_BYTES
        self.check(first, count * item_bytes, where)
        self.charge(count * item_bytes, where)
        return first, count

    def text(self, at: int, where: str) -> str:
        """A string; bytes that are not UTF-8 become surrogate escapes."""
        known = self._strings.get(at)
        if known is None:
            first, length = self.vector(at, 1, where)
            if self.number(_U8, first + length, where) != 0:
                raise refusal(f"{where}: the string at byte {at} does not end in a zero")
            known = self._strings[at] = bytes(self.data[first : first + length]).decode("utf-8", "surrogateescape")
        return known

    def few_texts(self, first: int, count: int) -> CodedList | None:
        """Strings of a vector, of which few are different, in a list that does not make them.

        Args:
            first: position of the vector's first item.
            count: its items.

        Returns:
            The strings; None if there is anything amiss, or many are different, so that they must be read one by one.
        """
        offsets = np.frombuffer(self.data, "<u4", count, first)
        places, which = np.unique(np.arange(count) * _OFFSET_BYTES + first + offsets, return_inverse=True)
        content, known = np.frombuffer(self.data, np.uint8), FewStrings()
        if not offsets.all() or places[-1] + _OFFSET_BYTES > content.size:
            return None
        lengths = np.ndarray((content.size - _OFFSET_BYTES + 1,), "<u4", content, 0, (1,))[places].astype(np.int64)
        ends = places + _OFFSET_BYTES + lengths
        if lengths.max() >= _SHORT_BYTES or ends.max() >= content.size or content[ends].any():
            return None
        codes = codes_of(content, places + _OFFSET_BYTES, lengths, known)
        if codes is None:
            return None
        # Strings that several vectors share are few, and are counted again here.
        self.charge(int(lengths.sum()), "a vector of strings")
        return CodedList([value.decode("utf-8", "surrogateescape") for value in known.values], codes[which])


class Table:
    """One table; fields are read by slot. A field that is absent has its default.

    All methods raise ``Fail`` for what is not inside the buffer.

    Args:
        buffer: the buffer.
        at: position of the table.
        depth: number of tables from the root to here.
        name: kind of the table, for messages.
    """

    __slots__ = ("_at", "_buffer", "_bytes", "_depth", "_name", "_vtable", "_vtable_bytes")

    def __init__(self, buffer: FlatBuffer, at: int, depth: int, name: str) -> None:
        where = f"{name} at byte {at}"
        buffer.enter_table(depth, where)
        self._buffer = buffer
        self._at = at
        self._depth = depth
        self._name = name
        self._vtable: int = at - buffer.number(_I32, at, where)
        self._vtable_bytes: int = buffer.number(_U16, self._vtable, where)
        buffer.check(self._vtable, self._vtable_bytes, where)
        self._bytes: int = buffer.number(_U16, self._vtable + 2, where)
        buffer.check(at, self._bytes, where)
        buffer.charge(self._bytes, where)
        if self._vtable_bytes < 4 or self._vtable_bytes % 2 or self._bytes < 4:
            raise refusal(f"{where}: its table of fields has {self._vtable_bytes} bytes, itself {self._bytes}")

    def has(self, slot: int) -> bool:
        """Whether a field is present."""
        return self._field(slot, 1) is not None

    def u8(self, slot: int) -> int:
        """An unsigned byte; 0 if absent."""
        return int(self._number(_U8, slot, 0))

    def i8(self, slot: int) -> int:
        """A signed byte; 0 if absent."""
        return int(self._number(_I8, slot, 0))

    def i32(self, slot: int) -> int:
        """A signed integer of 32 bits; 0 if absent."""
        return int(self._number(_I32, slot, 0))

    def u32(self, slot: int) -> int:
        """An unsigned integer of 32 bits; 0 if absent."""
        return int(self._number(_U32, slot, 0))

    def i64(self, slot: int, default: int = 0) -> int:
        """A signed integer of 64 bits."""
        return int(self._number(_I64, slot, default))

    def f32(self, slot: int) -> float:
        """A float of 32 bits; 0 if absent."""
        return float(self._number(_F32, slot, 0.0))

    def text(self, slot: int) -> str | None:
        """A string."""
        at = self._reference(slot)
        return None if at is None else self._buffer.text(at, self._where(slot))

    def table(self, slot: int, name: str) -> Table | None:
        """A table of a kind."""
        at = self._reference(slot)
        return None if at is None else Table(self._buffer, at, self._depth + 1, name)

    def tables(self, slot: int, name: str) -> list[Table]:
        """A vector of tables of a kind; empty if absent."""
        return [Table(self._buffer, at, self._depth + 1, name) for at in self._references(slot)]

    def texts(self, slot: int) -> list[str]:
        """A vector of strings; empty if absent."""
        where = self._where(slot)
        return [self._buffer.text(at, where) for at in self._references(slot)]

    def many_texts(self, slot: int) -> list[str]:
        """A vector of strings that may be very many, of which few are different; empty if absent."""
        found = self.vector(slot, _OFFSET_BYTES) or (0, 0)
        few = self._buffer.few_texts(*found) if found[1] >= MANY_ELEMENTS else None
        return self.texts(slot) if few is None else few

    def numbers(self, slot: int, dtype: str) -> list[Any]:
        """A vector of numbers of a little-endian NumPy type; empty if absent."""
        found = self.records(slot, np.dtype(dtype))
        return list(found.tolist()) if found.size < MANY_ELEMENTS else NumberList(found.copy())

    def records(self, slot: int, dtype: np.dtype[Any]) -> HostArray:
        """A vector of structs, or of numbers, as an array; empty if absent."""
        first, count = self.vector(slot, dtype.itemsize) or (0, 0)
        return np.frombuffer(self._buffer.data, dtype, count, first) if count else np.empty(0, dtype)

    def vector(self, slot: int, item_bytes: int) -> tuple[int, int] | None:
        """Position of a vector's first item in the buffer, and the number of items."""
        at = self._reference(slot)
        return None if at is None else self._buffer.vector(at, item_bytes, self._where(slot))

    def _number(self, code: struct.Struct, slot: int, default: float) -> Any:
        at = self._field(slot, code.size)
        return default if at is None else code.unpack_from(self._buffer.data, at)[0]

    def _reference(self, slot: int) -> int | None:
        at = self._field(slot, _OFFSET_BYTES)
        return None if at is None else self._buffer.follow(at, self._where(slot))

    def _references(self, slot: int) -> list[int]:
        found = self.vector(slot, _OFFSET_BYTES)
        if found is None:
            return []
        first, count = found
        where = self._where(slot)
        return [self._buffer.follow(first + _OFFSET_BYTES * index, where) for index in range(count)]

    def _field(self, slot: int, length: int) -> int | None:
        """Position of a field, inside the table; None if it is absent."""
        entry = 4 + 2 * slot
        if entry + 2 > self._vtable_bytes:
            return None
        offset: int = _U16.unpack_from(self._buffer.data, self._vtable + entry)[0]
        if offset == 0:
            return None
        if offset + length > self._bytes:
            raise refusal(f"{self._where(slot)} is {offset} bytes into a table of {self._bytes}")
        return self._at + offset

    def _where(self, slot: int) -> str:
        field = getattr(slot, "name", str(slot)).lower()
        return f"field {field} of the {self._name} at byte {self._at}"


def refusal(reason: str) -> Fail:
    """The error for a file that is no sound FlatBuffer."""
    return Fail(f"ORT model verification failed. {reason}")
