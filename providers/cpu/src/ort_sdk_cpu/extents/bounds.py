"""The one place where arrays are checked against what a task declares."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import ExtentError, HostArray
from ort_sdk.opset.strided_views import byte_span
from ort_sdk_cpu.addresses import HEAD_BYTES, head_at, head_of

from .declaration import CONTIGUOUS, WRITEABLE, Declaration, Extent

__all__ = ["Bounds", "Quick", "checked_words", "quick_extents"]

Quick = tuple[tuple[int, int, int, Extent], ...]
"""For each address its position, the least bytes of a contiguous array there, the flags it has to have, and the extent."""
Memory = tuple[int, int, bool]
"""Bytes before and behind an address, and whether they may be written."""

_span = functools.lru_cache(maxsize=1024)(byte_span)


def _memory_of(array: HostArray) -> Memory:
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

    __slots__ = ("_declaration", "_extents", "_memory", "_parts", "_words")

    def __init__(self, declaration: Declaration, words: list[Any], parts: int) -> None:
        self._declaration, self._words, self._parts = declaration, words, parts
        self._extents: dict[int, tuple[int, int, Extent]] = {}
        """Position → least bytes, flags and extent, once all was checked."""
        self._memory: dict[int, Memory] = {}

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """An argument is an array's address, so many bytes on; 0 for None.

        Raises:
            ExtentError: all was checked, and the task would reach outside of this array.
        """
        if array is None:
            self._forget(position)
            return
        found = self._extents.get(position)
        if found is not None and not offset and array.nbytes >= found[0] and array.flags.num & found[1] == found[1]:
            return
        before, behind, is_writeable = _memory_of(array)
        self.tell(position, (before + offset, behind - offset, is_writeable))

    def _forget(self, position: int) -> None:
        self._memory.pop(position, None)
        found = self._extents.get(position)
        if found is not None and not found[2].may_be_none:
            raise _fault(self._declaration, found[2], "there is no array")

    def tell(self, position: int, memory: Memory) -> None:
        """The same for memory that something is known of."""
        self._memory[position] = memory
        found = self._extents.get(position)
        if found is not None:
            _check(self._declaration, found[2], memory)

    def change(self, position: int, value: int) -> bool:
        """An argument that is no address is another number; whether all has to be checked again."""
        if self._words[position] == value:
            return False
        self._words[position] = value
        self._extents = {}
        return True

    def is_address(self, position: int) -> bool:
        """Whether an argument is one."""
        return position in self._declaration.pointers

    def check(self, addresses: Sequence[int], *, may_lack_work: bool = False) -> None:
        """Look at all that is known.

        Args:
            addresses: the record's words.
            may_lack_work: whether working memory is pointed at later.

        Raises:
            ExtentError: the task would reach outside of an array, or at an address of which nothing is known.
        """
        extents = self._declaration.extents(self._words, self._parts)
        for extent in extents:
            if not addresses[extent.position]:
                if not extent.may_be_none and not (extent.is_work and may_lack_work):
                    raise _fault(self._declaration, extent, "its address is 0")
                continue
            memory = self._memory.get(extent.position)
            if memory is None:
                raise _fault(self._declaration, extent, "nothing is known of the memory there")
            _check(self._declaration, extent, memory)
        self._extents = {extent.position: (extent.least, extent.flags, extent) for extent in extents}


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
        if array is None:
            if not extent.may_be_none:
                raise _fault(declaration, extent, "there is no array")
            words[position] = 0
            continue
        head = head_of(array) if head_at is None else head_at(id(array) + HEAD_BYTES)
        if array.nbytes < least or head.flags & flags != flags:
            _check(declaration, extent, _memory_of(array))
        words[position] = head.address
    return words
