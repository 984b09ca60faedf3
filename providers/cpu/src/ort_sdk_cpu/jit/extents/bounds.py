"""The one place where arrays are checked against what a task declares."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import ExtentError, HostArray
from ort_sdk.opset.strided_views import byte_span
from ort_sdk_cpu.platform.addresses import OBJECT_HEADER_BYTES, array_header, array_header_at

from .declaration import CONTIGUOUS, WRITEABLE, Declaration, Extent, declaration_of

__all__ = ["Bounds", "Memory", "Quick", "check_words", "checked_words", "memory_of", "quick_extents"]

Quick = tuple[tuple[int, int, int, Extent], ...]
"""For each address its position, the least bytes of a contiguous array there, the flags it has to have, and the extent."""
Memory = tuple[int, int, bool]
"""Bytes before and behind an address, and whether they may be written."""

_span = functools.lru_cache(maxsize=1024)(byte_span)


def memory_of(array: HostArray) -> Memory:
    """What is known of an array's memory."""
    flags = array.flags.num
    if flags & CONTIGUOUS:
        return 0, array.nbytes, bool(flags & WRITEABLE)
    low, high = _span(array.shape, array.strides, array.itemsize)
    return -low, high, bool(flags & WRITEABLE)


def _fault(declaration: Declaration, extent: Extent, there: str) -> ExtentError:
    wanted = f"{extent.behind} bytes from its address on" + (f" and {extent.before} before" if extent.before else "")
    verb = "writes" if extent.is_written else "reads"
    return ExtentError(
        f"The compiled task {declaration.name} {verb} {wanted} at its argument {declaration.names[extent.position]!r}, "
        f"but {there}. It was not started. This is a fault of the kernel that starts it."
    )


def _check(declaration: Declaration, extent: Extent, memory: Memory) -> None:
    before, behind, is_writeable = memory
    if extent.before > before or extent.behind > behind:
        raise _fault(declaration, extent, f"there are {behind} bytes, and {before} before")
    if extent.is_written and not is_writeable and extent.behind:
        raise _fault(declaration, extent, "the array there is read-only")


class Bounds:
    """What a task's call touches with arguments that stay, and what is known of the memory at its addresses.

    Args:
        declaration: the task's.
        words: its arguments; addresses count for nothing.
        parts: threads at most.
    """

    __slots__ = ("_declaration", "_extents", "_memory", "_parts", "_words", "is_checked")

    def __init__(self, declaration: Declaration, words: list[Any], parts: int) -> None:
        self._declaration, self._words, self._parts = declaration, words, parts
        self._extents: dict[int, tuple[int, int, Extent]] = {}
        """Position → least bytes, flags and extent, once all was checked."""
        self._memory: dict[int, Memory] = {}
        self.is_checked = False
        """Whether all was checked with the arguments there are."""

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """An argument is an array's address, so many bytes on; 0 for None.

        Raises:
            ExtentError: all was checked, and the task would reach outside of this array.
        """
        if array is None:
            self._forget(position)
            return
        found = self._extents.get(position)
        if found is not None and not offset:
            nbytes, flags = array.nbytes, array.flags.num
            if flags & CONTIGUOUS and nbytes >= found[0] and flags & found[1] == found[1]:
                self._memory[position] = (0, nbytes, bool(flags & WRITEABLE))
                return
        before, behind, is_writeable = memory_of(array)
        self.tell(position, (before + offset, behind - offset, is_writeable))

    def _forget(self, position: int) -> None:
        self._memory.pop(position, None)
        self._decide(position, 0)
        found = self._extents.get(position)
        if found is not None and not found[2].may_be_none:
            raise _fault(self._declaration, found[2], "there is no array")

    def tell(self, position: int, memory: Memory) -> None:
        """The same for memory that something is known of."""
        self._memory[position] = memory
        self._decide(position, 1)
        found = self._extents.get(position)
        if found is not None:
            _check(self._declaration, found[2], memory)

    def _decide(self, position: int, is_given: int) -> None:
        if position in self._declaration.deciding:
            self.change(position, is_given)

    def change(self, position: int, value: int) -> None:
        """An argument is another number; of an address, whether there is one: all has to be checked again."""
        before = self._words[position]
        if before is not value and (type(before) is not int or before != value):
            self._words[position] = value
            self._extents = {}
            self.is_checked = False

    def is_address(self, position: int) -> bool:
        """Whether an argument is one."""
        return position in self._declaration.pointers

    def check(self, addresses: Sequence[int], *, may_lack_some: bool = False) -> None:
        """Look at all that is known.

        Args:
            addresses: the record's words.
            may_lack_some: whether addresses that are 0 are pointed at later.

        Raises:
            ExtentError: the task would reach outside of an array, or at an address of which nothing is known.
        """
        extents = self._declaration.extents(self._words, self._parts)
        for extent in extents:
            if addresses[extent.position] or not may_lack_some:
                _check_at(self._declaration, extent, addresses[extent.position], self._memory.get(extent.position))
        self._extents = {extent.position: (extent.least, extent.flags, extent) for extent in extents}
        self.is_checked = self.is_checked or not may_lack_some


def _check_at(declaration: Declaration, extent: Extent, address: int, memory: Memory | None) -> None:
    if address and memory is None and extent.behind:
        raise _fault(declaration, extent, "nothing is known of the memory there")
    if address and memory is not None:
        _check(declaration, extent, memory)
    if not address and not extent.may_be_none:
        raise _fault(declaration, extent, "its address is 0")


def check_words(module: str, name: str, words: Sequence[Any], parts: int, memory: Mapping[int, Memory]) -> None:
    """Check a task's arguments that others write into records.

    Args:
        module: of ``compiled``.
        name: the task's.
        words: its arguments; addresses count by whether they are 0.
        parts: threads at most.
        memory: position of an address → what is known of the memory there.

    Raises:
        ExtentError: it would reach outside of an array.
    """
    declaration = declaration_of(module, name)
    if declaration is not None:
        given = [1 if place in memory else word for place, word in enumerate(words)]
        for extent in declaration.extents(given, parts):
            _check_at(declaration, extent, given[extent.position], memory.get(extent.position))


def quick_extents(declaration: Declaration, arguments: Sequence[Any], parts: int) -> Quick:
    """What ``checked_words`` looks at, for the sizes among some arguments."""
    extents = declaration.extents(arguments, parts)
    return tuple((extent.position, extent.least, extent.flags, extent) for extent in extents)


def checked_words(declaration: Declaration, extents: Quick, arguments: Sequence[Any]) -> list[Any]:
    """The words of a call: addresses in place of arrays, which are checked first.

    Args:
        declaration: the task's.
        extents: for its sizes.
        arguments: arrays, None for none, and numbers.

    Raises:
        ExtentError: the task would reach outside of an array.
    """
    words = list(arguments)
    for position, least, flags, extent in extents:
        array = words[position]
        if array is None or type(array) is int:
            if array:
                raise _fault(declaration, extent, "nothing is known of the memory there")
            if not extent.may_be_none:
                raise _fault(declaration, extent, "there is no array")
            words[position] = 0
            continue
        head = array_header(array) if array_header_at is None else array_header_at(id(array) + OBJECT_HEADER_BYTES)
        if array.nbytes < least or head.flags & flags != flags:
            _check(declaration, extent, memory_of(array))
        words[position] = head.address
    return words
