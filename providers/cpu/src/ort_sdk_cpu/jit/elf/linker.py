"""Links an object file into an image: code and data at fixed places relative to each other, ready to be mapped.

What is read only comes first, so that its pages stay as they are in the file and are shared by all processes. Pages from
``Image.writable`` on hold what each process fills in for itself: its variables, and addresses of other libraries' functions.
Relocations are those of x86-64 (System V ABI, AMD64 supplement).
"""

from __future__ import annotations

import mmap
import struct

from .image import Image, LinkError, Pointer
from .object_file import ObjectFile, Relocation, Section, Symbol

__all__ = ["link"]

_WORD = 8
_ADDRESS, _RELATIVE_64 = 1, 24
_RELATIVE = (2, 4)
_RELATIVE_TO_SLOT = (9, 41, 42)
"""``R_X86_64_``: 64; PC64; PC32, PLT32; GOTPCREL, GOTPCRELX, REX_GOTPCRELX."""
_JUMP = b"\xff\x25"
"""``jmp`` to the address that lies at a distance from the next instruction, which follows in 4 bytes."""


def link(code: bytes, symbol: str, start: int) -> Image:
    """Make an image of an object file.

    Args:
        code: the object file, made for any address ("position-independent").
        symbol: the function wanted.
        start: bytes of the mapping before the image.

    Raises:
        LinkError: the file needs what images do not have, or has no such function.
    """
    return _Linker(ObjectFile(code), start).image(symbol)


class _Linker:
    def __init__(self, file: ObjectFile, start: int) -> None:
        self._file, self._start = file, start
        self._content = bytearray()
        self._sections: dict[int, int] = {}
        """Number of a section → its place; so are the next two by name, of other libraries' symbols."""
        self._stubs: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._pointers: list[Pointer] = []

    def image(self, symbol: str) -> Image:
        if any(section.is_of_threads for section in self._file.sections):
            raise LinkError("the object file has variables of threads")
        constant = [section for section in self._file.sections if not section.is_writable]
        variable = [section for section in self._file.sections if section.is_writable]
        self._place(sorted(constant, key=lambda section: not section.is_code))
        externals = sorted({entry.symbol.name for entry in self._file.relocations if not entry.symbol.section})
        self._stubs = {name: self._append(_JUMP + bytes(4), _WORD) for name in externals}
        writable = self._append(b"", mmap.PAGESIZE) if variable or externals else self._end
        self._place(variable)
        for name in externals:
            self._add_slot(name)
        for entry in self._file.relocations:
            self._relocate(entry, is_variable=any(section.number == entry.section for section in variable))
        return Image(bytes(self._content), self._entry(symbol), writable, tuple(self._pointers))

    @property
    def _end(self) -> int:
        return self._start + len(self._content)

    def _append(self, data: bytes, alignment: int) -> int:
        self._content += bytes(-self._end % alignment)
        place = self._end
        self._content += data
        return place

    def _place(self, sections: list[Section]) -> None:
        for section in sections:
            self._sections[section.number] = self._append(section.data, section.alignment)

    def _add_slot(self, name: str) -> None:
        """A word for another library's function, and the target of the jump that stands for it near the code."""
        slot = self._slots[name] = self._append(bytes(_WORD), _WORD)
        self._pointers.append(Pointer(slot, 0, name))
        distance = self._stubs[name] + len(_JUMP)
        self._write("<i", distance, slot - (distance + 4))

    def _entry(self, name: str) -> int:
        for symbol in self._file.symbols:
            if symbol.name == name and symbol.section in self._sections:
                return self._where(symbol)
        raise LinkError(f"the object file has no function {name!r}")

    def _where(self, symbol: Symbol) -> int:
        """Place of a symbol, or of the jump to it."""
        if not symbol.section:
            return self._stubs[symbol.name]
        if symbol.section not in self._sections:
            raise LinkError(f"symbol {symbol.name!r} is in section {symbol.section}, which images do not have")
        return self._sections[symbol.section] + symbol.offset

    def _relocate(self, entry: Relocation, *, is_variable: bool) -> None:
        place, symbol, addend = self._sections[entry.section] + entry.offset, entry.symbol, entry.addend
        if entry.kind == _ADDRESS and is_variable:
            where = addend if not symbol.section else self._where(symbol) + addend
            self._pointers.append(Pointer(place, where, symbol.name if not symbol.section else ""))
        elif entry.kind in _RELATIVE:
            self._write("<i", place, self._where(symbol) + addend - place)
        elif entry.kind == _RELATIVE_64:
            self._write("<q", place, self._where(symbol) + addend - place)
        elif entry.kind in _RELATIVE_TO_SLOT and not symbol.section:
            self._write("<i", place, self._slots[symbol.name] + addend - place)
        else:
            raise LinkError(f"relocation {entry.kind} of symbol {symbol.name!r} is none that images have")

    def _write(self, kind: str, place: int, value: int) -> None:
        try:
            struct.pack_into(kind, self._content, place - self._start, value)
        except struct.error as error:
            raise LinkError(f"the object file is too large: a distance of {value} bytes") from error
