"""Reads LLVM's object files, in ELF's 64-bit little-endian format (System V ABI)."""

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
    """A section that is loaded into memory.

    Args:
        number: index in the file.
        data: its bytes.
        alignment: in bytes.
        is_code: whether it is executable.
        is_writable: whether it is written to, be it only while it is loaded.
        is_of_threads: whether it has thread-local variables.
    """

    number: int
    data: bytes
    alignment: int
    is_code: bool
    is_writable: bool
    is_of_threads: bool


class Symbol(NamedTuple):
    """A named offset in a section."""

    name: str
    section: int
    """Its section's number; 0 for an undefined symbol, of another library; reserved numbers for absolute and common symbols."""
    offset: int


class Relocation(NamedTuple):
    """A word of a section that depends on the address of a symbol."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


class ObjectFile:
    """Sections, symbols and relocations of an object file.

    Args:
        code: content of the file.

    Raises:
        ValueError: the file is not of ELF's 64-bit little-endian format.
    """

    def __init__(self, code: bytes) -> None:
        if code[: len(_MAGIC)] != _MAGIC:
            raise ValueError("the object file is not of ELF's 64-bit little-endian format")
        self._code = code
        (table,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
        self._headers = [_Header(*_SECTION.unpack_from(code, table + _SECTION.size * number)) for number in range(count)]

    @cached_property
    def sections(self) -> list[Section]:
        """Sections that are loaded into memory, without tables for stack unwinding."""
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

    def _text(self, offset: int) -> str:
        return self._code[offset : self._code.index(b"\0", offset)].decode()

    @cached_property
    def relocations(self) -> list[Relocation]:
        """Relocations of the sections that are loaded into memory."""
        kept = {section.number for section in self.sections}
        return [
            Relocation(table.info, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)
            for table in self._headers
            if table.kind == _RELOCATIONS and table.info in kept
            for offset, info, addend in _RELOCATION.iter_unpack(self._code[table.offset : table.offset + table.size])
        ]
