"""Object files of the compiler, in ELF's 64-bit little-endian format (System V ABI)."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import NamedTuple

from ort_sdk.api.data_classes import dataclass

__all__ = ["ObjectFile", "Relocation", "Section", "Symbol"]

_MAGIC = b"\x7fELF\x02\x01"
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_PROGRAM_DATA, _SYMBOL_TABLE, _RELOCATIONS, _ZEROS = 1, 2, 4, 8
_WRITABLE, _ALLOCATED, _EXECUTABLE, _OF_THREADS = 1, 2, 4, 0x400


class _Header(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the file that belongs into memory.

    Args:
        number: in the file.
        data: its bytes.
        alignment: its address must be a multiple of it.
        is_code: whether it is executed.
        is_writable: whether it is written to, if only while it is loaded.
        is_of_threads: whether each thread has one.
    """

    number: int
    data: bytes
    alignment: int
    is_code: bool
    is_writable: bool
    is_of_threads: bool


class Symbol(NamedTuple):
    """A place that has a name."""

    name: str
    section: int
    """Its section's number; 0 for a place of another library; numbers of no section for constants and common variables."""
    offset: int


class Relocation(NamedTuple):
    """A place whose content depends on where a symbol is."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


class ObjectFile:
    """What is in an object file.

    Args:
        code: the file.

    Raises:
        ValueError: it is of another format.
    """

    def __init__(self, code: bytes) -> None:
        if code[: len(_MAGIC)] != _MAGIC:
            raise ValueError("the object file is not of ELF's 64-bit little-endian format")
        self._code = code
        (table,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
        self._headers = [_Header(*_SECTION.unpack_from(code, table + _SECTION.size * number)) for number in range(count)]

    @cached_property
    def sections(self) -> list[Section]:
        """Those that belong into memory; not tables for unwinding the stack."""
        return [
            self._section(number, header)
            for number, header in enumerate(self._headers)
            if header.flags & _ALLOCATED and header.kind in {_PROGRAM_DATA, _ZEROS}
        ]

    def _section(self, number: int, header: _Header) -> Section:
        data = bytes(header.size) if header.kind == _ZEROS else self._code[header.offset : header.offset + header.size]
        is_code, is_writable = bool(header.flags & _EXECUTABLE), bool(header.flags & _WRITABLE)
        return Section(number, data, max(1, header.alignment), is_code, is_writable, bool(header.flags & _OF_THREADS))

    @cached_property
    def symbols(self) -> list[Symbol]:
        """All symbols, in the file's order."""
        table = next((header for header in self._headers if header.kind == _SYMBOL_TABLE), None)
        if table is None:
            return []
        names = self._headers[table.link].offset
        rows = _SYMBOL.iter_unpack(self._code[table.offset : table.offset + table.size])
        return [Symbol(self._text(names + name), section, value) for name, _, _, section, value, _ in rows]

    def _text(self, place: int) -> str:
        return self._code[place : self._code.index(b"\0", place)].decode()

    @cached_property
    def relocations(self) -> list[Relocation]:
        """Those of the sections that belong into memory."""
        kept = {section.number for section in self.sections}
        return [
            Relocation(table.info, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
            for table in self._headers
            if table.kind == _RELOCATIONS and table.info in kept
            for offset, info, addend in _RELOCATION.iter_unpack(self._code[table.offset : table.offset + table.size])
        ]
