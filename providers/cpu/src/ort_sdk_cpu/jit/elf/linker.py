"""Links an object file into an image: code and data at fixed offsets from each other, ready to be mapped.

Read-only sections come first, so that their pages stay as in the file and are shared by all processes. Pages from
``Image.writable`` on are written by each process: variables, and addresses of other libraries' functions. Relocations are those
of x86-64 (System V ABI, AMD64 supplement).
"""

from __future__ import annotations

import mmap
import struct

from .image import DynamicRelocation, Image, LinkError
from .object_file import ObjectFile, Relocation, Section, Symbol

__all__ = ["link"]

_WORD = 8
_ADDRESS, _RELATIVE_64 = 1, 24
_RELATIVE = (2, 4)
_RELATIVE_TO_SLOT = (9, 41, 42)
"""``R_X86_64_``: 64; PC64; PC32, PLT32; GOTPCREL, GOTPCRELX, REX_GOTPCRELX."""
_JUMP = b"\xff\x25"
"""``jmp *offset(%rip)``, of which the 4 bytes of the offset are missing."""


def link(code: bytes, symbol: str, start: int) -> Image:
    """Link an object file into an image.

    Args:
        code: the object file, with position-independent code.
        symbol: the function that is the image's entry.
        start: bytes of the mapping before the image.

    Raises:
        LinkError: the file has sections or relocations that images do not support, or no such function.
    """
    return _Linker(ObjectFile(code), start).image(symbol)


class _Linker:
    def __init__(self, file: ObjectFile, start: int) -> None:
        self._file, self._start = file, start
        self._content = bytearray()
        self._sections: dict[int, int] = {}
        """Number of a section → its offset."""
        self._stubs: dict[str, int] = {}
        """Name of another library's function → offset of the jump to it (its entry in the procedure linkage table)."""
        self._slots: dict[str, int] = {}
        """Name of another library's function → offset of its address (its entry in the global offset table)."""
        self._pointers: list[DynamicRelocation] = []

    def image(self, symbol: str) -> Image:
        if any(section.is_of_threads for section in self._file.sections):
            raise LinkError("the object file has thread-local variables, which images do not support")
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
        offset = self._end
        self._content += data
        return offset

    def _place(self, sections: list[Section]) -> None:
        for section in sections:
            self._sections[section.number] = self._append(section.data, section.alignment)

    def _add_slot(self, name: str) -> None:
        """Append the address of another library's function, and complete the jump to it."""
        slot = self._slots[name] = self._append(bytes(_WORD), _WORD)
        self._pointers.append(DynamicRelocation(slot, 0, name))
        operand = self._stubs[name] + len(_JUMP)
        self._write("<i", operand, slot - (operand + 4))

    def _entry(self, name: str) -> int:
        for symbol in self._file.symbols:
            if symbol.name == name and symbol.section in self._sections:
                return self._offset_of(symbol)
        raise LinkError(f"the object file has no function {name!r}")

    def _offset_of(self, symbol: Symbol) -> int:
        """Offset of a symbol; of another library's function, of the jump to it."""
        if not symbol.section:
            return self._stubs[symbol.name]
        if symbol.section not in self._sections:
            raise LinkError(f"symbol {symbol.name!r} is in section {symbol.section}, which is not part of the image")
        return self._sections[symbol.section] + symbol.offset

    def _relocate(self, entry: Relocation, *, is_variable: bool) -> None:
        offset, symbol, addend = self._sections[entry.section] + entry.offset, entry.symbol, entry.addend
        if entry.kind == _ADDRESS and is_variable:
            target = addend if not symbol.section else self._offset_of(symbol) + addend
            self._pointers.append(DynamicRelocation(offset, target, symbol.name if not symbol.section else ""))
        elif entry.kind in _RELATIVE:
            self._write("<i", offset, self._offset_of(symbol) + addend - offset)
        elif entry.kind == _RELATIVE_64:
            self._write("<q", offset, self._offset_of(symbol) + addend - offset)
        elif entry.kind in _RELATIVE_TO_SLOT and not symbol.section:
            self._write("<i", offset, self._slots[symbol.name] + addend - offset)
        else:
            raise LinkError(f"relocation {entry.kind} of symbol {symbol.name!r} is not supported in images")

    def _write(self, kind: str, offset: int, value: int) -> None:
        try:
            struct.pack_into(kind, self._content, offset - self._start, value)
        except struct.error as error:
            raise LinkError(f"the object file is too large: a relative offset of {value} bytes does not fit") from error
