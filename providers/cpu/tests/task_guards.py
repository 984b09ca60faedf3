"""Compiled tasks between guard pages: run as a script on a list of launches, each is done on memory of exactly what it declares.

An access outside of it ends the process; the last line printed says whose it was.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable

import numpy as np
from ort_sdk_cpu.jit.extents.declaration import declaration_of
from ort_sdk_cpu.jit.task import TaskCall

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class Guarded:
    """Memory with a page before and behind that no access may reach.

    Args:
        nbytes: how much.
        at_end: whether it ends where the last page begins; else it begins where the first one ends.
    """

    def __init__(self, nbytes: int, *, at_end: bool) -> None:
        pages = -(-nbytes // PAGE) * PAGE
        self._size = pages + 2 * PAGE
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = _LIBC.mmap(None, self._size, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0)
        assert start not in {None, ctypes.c_void_p(-1).value}
        self._start = start
        for guard in (start, start + PAGE + pages):
            assert _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0) == 0
        address = start + PAGE + (pages - nbytes if at_end else 0)
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def free(self) -> None:
        """Give it back."""
        assert _LIBC.munmap(ctypes.c_void_p(self._start), ctypes.c_size_t(self._size)) == 0


def pointed(module: str, name: str, words: list, parts: int, memory: Callable[[int], np.ndarray], less: int | None = None):
    """A task on memory of what it declares.

    Args:
        module: of ``compiled``.
        name: the task's.
        words: its arguments; addresses count for nothing, but those on which others depend: 0 says that there is none.
        parts: threads.
        memory: makes so many bytes.
        less: position of an address with one byte less; None for none.
    """
    declaration = declaration_of(module, name)
    call = TaskCall(module, name, tuple(0 if place in declaration.pointers else word for place, word in enumerate(words)), parts)
    for extent in touched(module, name, words, parts):
        nbytes = extent.before + extent.behind - (extent.position == less)
        call.point(extent.position, memory(nbytes), extent.before)
    return call


def touched(module: str, name: str, words: list, parts: int) -> list:
    """What is touched, but for what is not there."""
    declaration = declaration_of(module, name)
    absent = {position for position in declaration.deciding if not words[position]}
    extents = declaration.extents(words, parts)
    return [extent for extent in extents if extent.behind + extent.before and extent.position not in absent]


def launch(module: str, name: str, words: list, parts: int, contents: dict[str, list[int]], *, at_end: bool) -> None:
    """Run a task on guarded memory of exactly what it declares; see ``Guarded``.

    Args:
        module: of ``compiled``.
        name: the task's.
        words: its arguments.
        parts: threads.
        contents: position of an address → int64 numbers from there on; zeros are elsewhere.
        at_end: where memory ends.
    """
    memories: list[Guarded] = []

    def memory(nbytes: int) -> np.ndarray:
        memories.append(Guarded(nbytes, at_end=at_end))
        return memories[-1].array

    call = pointed(module, name, words, parts, memory)
    for extent, given in zip(touched(module, name, words, parts), memories, strict=True):
        numbers = np.array(contents.get(str(extent.position), []), np.int64).view(np.uint8)
        given.array[extent.before : extent.before + numbers.size] = numbers
    call.run()
    for each in memories:
        each.free()


def main() -> None:
    """Run all launches of a file."""
    for task, parts, words, *contents in json.loads(sys.stdin.read()):
        for at_end in (True, False):
            sys.stdout.write(f"{task} {parts} {words} {contents} {'end' if at_end else 'begin'}\n")
            sys.stdout.flush()
            launch(*task.rsplit(".", 1), list(words), parts, *(contents or [{}]), at_end=at_end)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
