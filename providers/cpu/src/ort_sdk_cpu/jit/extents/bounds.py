"""Checks the memory of arrays against the extents that tasks declare."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import ExtentError, HostArray
from ort_sdk.opset.strided_views import byte_span
from ort_sdk_cpu.platform.addresses import OBJECT_HEADER_BYTES, array_header, array_header_at

from .declaration import CONTIGUOUS, WRITEABLE, Declaration, Extent, declaration_of

__all__ = ["Bounds", "ExtentChecks", "Memory", "check_words", "checked_words", "extent_checks", "memory_of"]

ExtentChecks = tuple[tuple[int, int, int, Extent], ...]
"""For each address (position, least bytes of a contiguous array, NumPy flags that it must have, extent)."""
Memory = tuple[int, int, bool]
"""(bytes before an address, bytes from it on, whether they are writable)."""

_span = functools.lru_cache(maxsize=1024)(byte_span)


def memory_of(array: HostArray) -> Memory:
    """The memory of an array around the address of its first element."""
    flags = array.flags.num
    if flags & CONTIGUOUS:
        return 0, array.nbytes, bool(flags & WRITEABLE)
    low, high = _span(array.shape, array.strides, array.itemsize)
    return -low, high, bool(flags & WRITEABLE)


def _fault(declaration: Declaration, extent: Extent, found: str) -> ExtentError:
    wanted = f"{extent.behind} bytes from its address on" + (f" and {extent.before} before" if extent.before else "")
    verb = "writes" if extent.is_written else "reads"
    return ExtentError(
        f"The compiled task {declaration.name} {verb} {wanted} at its argument {declaration.names[extent.position]!r}, "
        f"but {found}. It was not started. This is a bug of the kernel that starts it; please report it."
    )


def _check(declaration: Declaration, extent: Extent, memory: Memory) -> None:
    before, behind, is_writeable = memory
    if extent.before > before or extent.behind > behind:
        raise _fault(declaration, extent, f"there are {behind} bytes from it on and {before} before")
    if extent.is_written and not is_writeable and extent.behind:
        raise _fault(declaration, extent, "the array there is read-only")


class Bounds:
    """Checks of a task's call: its extents for the current arguments, and the memory at its addresses.

    Args:
        declaration: the task's.
        words: its arguments; values of addresses are ignored.
        threads: number of threads at most.
    """

    __slots__ = ("_declaration", "_extents", "_memory", "_threads", "_words", "is_checked")

    def __init__(self, declaration: Declaration, words: list[Any], threads: int) -> None:
        self._declaration, self._words, self._threads = declaration, words, threads
        self._extents: dict[int, tuple[int, int, Extent]] = {}
        """Position → (least bytes, flags, extent); empty unless ``is_checked``."""
        self._memory: dict[int, Memory] = {}
        self.is_checked = False
        """Whether the current arguments were checked."""

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """Record the array at an address.

        Args:
            position: of the argument.
            array: the array; None for an address of 0.
            offset: bytes from the array's first element to the address.

        Raises:
            ExtentError: the call was checked, and the task would access memory outside of this array.
        """
        if array is None:
            self._clear(position)
            return
        found = self._extents.get(position)
        if found is not None and not offset:
            nbytes, flags = array.nbytes, array.flags.num
            if flags & CONTIGUOUS and nbytes >= found[0] and flags & found[1] == found[1]:
                self._memory[position] = (0, nbytes, bool(flags & WRITEABLE))
                return
        before, behind, is_writeable = memory_of(array)
        self._set_memory(position, (before + offset, behind - offset, is_writeable))

    def _clear(self, position: int) -> None:
        self._memory.pop(position, None)
        self._set_given(position, 0)
        found = self._extents.get(position)
        if found is not None and not found[2].may_be_none:
            raise _fault(self._declaration, found[2], "there is no array")

    def _set_memory(self, position: int, memory: Memory) -> None:
        self._memory[position] = memory
        self._set_given(position, 1)
        found = self._extents.get(position)
        if found is not None:
            _check(self._declaration, found[2], memory)

    def _set_given(self, position: int, is_given: int) -> None:
        if position in self._declaration.deciding:
            self.change(position, is_given)

    def change(self, position: int, value: int) -> None:
        """Record an argument's new value, for an address whether it is given; the call has to be checked again if it differs."""
        before = self._words[position]
        if before is not value and (type(before) is not int or before != value):
            self._words[position] = value
            self._extents = {}
            self.is_checked = False

    def is_address(self, position: int) -> bool:
        """Whether an argument is an address."""
        return position in self._declaration.pointers

    def check(self, addresses: Sequence[int], *, may_lack_some: bool = False) -> None:
        """Check all addresses.

        Args:
            addresses: the record's words.
            may_lack_some: whether addresses that are 0 are pointed later.

        Raises:
            ExtentError: the task would access memory outside of an array, or at an address without a known array.
        """
        extents = self._declaration.extents(self._words, self._threads)
        for extent in extents:
            if addresses[extent.position] or not may_lack_some:
                _check_at(self._declaration, extent, addresses[extent.position], self._memory.get(extent.position))
        self._extents = {extent.position: (extent.least, extent.flags, extent) for extent in extents}
        self.is_checked = self.is_checked or not may_lack_some


def _check_at(declaration: Declaration, extent: Extent, address: int, memory: Memory | None) -> None:
    if address and memory is None and extent.behind:
        raise _fault(declaration, extent, "the memory there is not known")
    if address and memory is not None:
        _check(declaration, extent, memory)
    if not address and not extent.may_be_none:
        raise _fault(declaration, extent, "its address is 0")


def check_words(module: str, name: str, words: Sequence[Any], threads: int, memory: Mapping[int, Memory]) -> None:
    """Check the arguments of a task of a sequence.

    Args:
        module: name of the task's module, ``<family>.<name>``.
        name: name of the task.
        words: its arguments; of addresses only whether they are 0 matters.
        threads: number of threads at most.
        memory: position of an address → memory there.

    Raises:
        ExtentError: the task would access memory outside of an array.
    """
    declaration = declaration_of(module, name)
    if declaration is not None:
        given = [1 if position in memory else word for position, word in enumerate(words)]
        for extent in declaration.extents(given, threads):
            _check_at(declaration, extent, given[extent.position], memory.get(extent.position))


def extent_checks(declaration: Declaration, arguments: Sequence[Any], threads: int) -> ExtentChecks:
    """The checks of ``checked_words`` for the sizes among some arguments.

    Args:
        declaration: the task's.
        arguments: its arguments.
        threads: number of threads at most.
    """
    extents = declaration.extents(arguments, threads)
    return tuple((extent.position, extent.least, extent.flags, extent) for extent in extents)


def checked_words(declaration: Declaration, extents: ExtentChecks, arguments: Sequence[Any]) -> list[Any]:
    """The words of a call: arguments with addresses in place of arrays, which are checked.

    Args:
        declaration: the task's.
        extents: its checks, for the sizes among the arguments.
        arguments: arrays, None for none, and numbers.

    Raises:
        ExtentError: the task would access memory outside of an array.
    """
    words = list(arguments)
    for position, least, flags, extent in extents:
        array = words[position]
        if array is None or type(array) is int:
            if array:
                raise _fault(declaration, extent, "the memory there is not known")
            if not extent.may_be_none:
                raise _fault(declaration, extent, "there is no array")
            words[position] = 0
            continue
        header = array_header(array) if array_header_at is None else array_header_at(id(array) + OBJECT_HEADER_BYTES)
        if array.nbytes < least or header.flags & flags != flags:
            _check(declaration, extent, memory_of(array))
        words[position] = header.address
    return words
