"""Declarations: how many bytes a task reads or writes at each address it takes, as a function of its other arguments.

A declaration is a function with the task's arguments as its parameters, in the task's order and by name. Addresses are annotated
``At``; for them it gets the argument's position, for all others the argument. It returns what is touched at each address. Sizes
are Python's integers, so that no product of them overflows.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NewType

from ort_sdk.api import ExtentError

__all__ = [
    "CONTIGUOUS",
    "KEPT_SIZES",
    "WRITEABLE",
    "At",
    "Declaration",
    "Extent",
    "MayBeAt",
    "arguments_module",
    "at_most",
    "declaration_of",
    "declare_task",
    "declares",
    "given",
    "reaches",
    "reads",
    "whole_vectors",
    "works",
    "writes",
]

At = NewType("At", int)
"""Position of an argument that is an address."""


class MayBeAt(int):
    """The same of one on which it depends what is touched elsewhere."""

    is_given: bool
    """Whether the address is not 0."""

    @classmethod
    def of(cls, position: int, *, is_given: bool) -> MayBeAt:
        """A position."""
        made = cls(position)
        made.is_given = is_given
        return made


CONTIGUOUS, WRITEABLE = 0x1, 0x400
"""NumPy's flags."""
_TOO_LARGE = 1 << 63
"""More than any array's bytes: those that are needed before the address are looked at in full."""


class Extent(NamedTuple):
    """What a task touches at an address."""

    position: int
    """Of the address among the task's arguments."""
    behind: int
    """Bytes from the address on."""
    before: int = 0
    """And before it."""
    is_written: bool = False
    may_be_none: bool = False
    """Whether the task looks whether the address is 0."""

    @property
    def least(self) -> int:
        """Bytes that a contiguous array has to have, so that nothing else of it need be looked at."""
        return _TOO_LARGE if self.before else self.behind

    @property
    def flags(self) -> int:
        """NumPy's flags that it has to have then."""
        return CONTIGUOUS | (WRITEABLE if self.is_written else 0) if self.behind else 0


Extents = Iterable[Extent]


def reads(at: int, nbytes: int) -> Extent:
    """The task reads bytes from the address on."""
    return Extent(at, nbytes)


def given(at: int, nbytes: int) -> Extent:
    """It reads them unless the address is 0."""
    return Extent(at, nbytes, may_be_none=True)


def writes(at: int, nbytes: int, *, may_be_none: bool = False) -> Extent:
    """It writes them, and may read what it wrote."""
    return Extent(at, nbytes, is_written=True, may_be_none=may_be_none)


def works(at: int, nbytes: int) -> Extent:
    """It uses them as working memory."""
    return Extent(at, nbytes, is_written=True)


def reaches(
    at: int,
    sizes: Iterable[int],
    steps: Iterable[int],
    itemsize: int,
    *,
    offset: int = 0,
    is_written: bool = False,
    may_be_none: bool = False,
) -> Extent:
    """It touches elements at fixed steps, which may be negative.

    Args:
        at: address of the first one, or of so many bytes before it.
        sizes: how many along each axis; nothing is touched if one is not above 0.
        steps: bytes from one to the next along each.
        itemsize: bytes that are touched at each.
        offset: bytes from the address to the first one.
        is_written: whether they are written.
        may_be_none: whether the task looks whether the address is 0.
    """
    low = high = 0
    for size, step in zip(sizes, steps, strict=True):
        if size <= 0:
            return Extent(at, 0, 0, is_written, may_be_none)
        if step < 0:
            low -= (size - 1) * step
        else:
            high += (size - 1) * step
    return Extent(at, max(0, offset + high + itemsize), max(0, low - offset), is_written, may_be_none)


def at_most(name: str, count: int, most: int) -> None:
    """Refuse what working memory has no room for.

    Raises:
        ExtentError: there are more.
    """
    if count > most:
        raise ExtentError(f"A compiled task has room for {most} {name} and was to be started with {count}.")


def whole_vectors(*sizes: int) -> None:
    """Refuse sizes of rows that a task reads and writes by whole vectors only.

    Raises:
        ExtentError: one is no multiple of 16 elements.
    """
    for size in sizes:
        if size % 16:
            raise ExtentError(f"A compiled task takes rows of multiples of 16 elements and was to be started with {size}.")


KEPT_SIZES = 1024
"""Combinations of sizes of which a declaration keeps what is touched."""
_TAKES_MORE = 0x04
"""Python's flag of functions with ``*``."""


class Declaration:
    """What a task touches.

    Args:
        name: of the task, for messages.
        names: of its arguments.
        pointers: positions of those that are addresses.
        function: from all arguments, positions in place of addresses, what is touched; and from the number of threads by the name
            ``threads`` if it depends on that.
        deciding: positions of addresses of which it counts whether they are 0.
        kinds: ``q`` for each argument that is an address or an integer, ``f`` for each float32; empty where launches say so.
        has_threads: whether the function takes the number of threads.
        has_tail: whether it depends on arguments that have no name.
        least_words: arguments that the task has at least; 0 for as many as there are names.
    """

    __slots__ = (
        "_function",
        "_has_tail",
        "_has_threads",
        "_kept",
        "_keys",
        "_least_words",
        "deciding",
        "kinds",
        "name",
        "names",
        "pointers",
    )

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        pointers: Sequence[int],
        function: Callable[..., Extents],
        *,
        deciding: Sequence[int] = (),
        kinds: str = "",
        has_threads: bool = False,
        has_tail: bool = False,
        least_words: int = 0,
    ) -> None:
        self.name, self.names, self.pointers, self.deciding, self.kinds = name, names, pointers, deciding, kinds
        self._function, self._has_threads, self._has_tail = function, has_threads, has_tail
        self._least_words = least_words or len(names)
        self._keys: dict[int, Callable[[Sequence[Any]], Any]] = {}
        self._kept: dict[Any, tuple[Extent, ...]] = {}

    @classmethod
    def of_function(cls, name: str, function: Callable[..., Extents], words: int = 0) -> Declaration:
        """The declaration that a function with the task's arguments as its parameters makes.

        Args:
            name: of the task.
            function: see the module; with a parameter ``parts`` by name if what is touched depends on the number of threads.
            words: arguments that the task has at least; 0 for as many as the function names.
        """
        code, annotations = function.__code__, function.__annotations__
        names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
        has_parts = bool(code.co_kwonlyargcount)
        takes_more = bool(code.co_flags & _TAKES_MORE)
        has_tail = takes_more and code.co_varnames[code.co_argcount + code.co_kwonlyargcount] != "_"
        pointers = tuple(place for place, each in enumerate(names) if annotations.get(each) in {"At", "MayBeAt"})
        deciding = tuple(place for place in pointers if annotations[names[place]] == "MayBeAt")

        def extents(*arguments: Any, **threads: int) -> Extents:
            return function(*arguments, parts=threads["threads"]) if has_parts else function(*arguments)

        return cls(
            *(name, names, pointers, extents),
            deciding=deciding,
            has_threads=has_parts,
            has_tail=has_tail,
            least_words=words,
        )

    def key_of(self, count: int) -> Callable[[Sequence[Any]], Any]:
        """From so many arguments those that are no addresses and on which it depends what is touched."""
        last = count if self._has_tail else len(self.names)
        places = [place for place in range(last) if place not in self.pointers]
        sizes: Callable[[Sequence[Any]], Any] = operator.itemgetter(*places) if places else _no_sizes
        if not self.deciding:
            return sizes
        return lambda words: (sizes(words), *[_is_given(words[place]) for place in self.deciding])

    def extents(self, words: Sequence[Any], threads: int) -> tuple[Extent, ...]:
        """What is touched with some arguments, by so many threads: an extent for each address, in order.

        Args:
            words: all arguments in order; addresses count for nothing.
            threads: at most.
        """
        get = self._keys.get(len(words))
        if get is None:
            get = self._keys[len(words)] = self.key_of(len(words))
        key = (threads if self._has_threads else 0, get(words))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_SIZES:
                self._kept.clear()
            found = self._kept[key] = self._computed(words, threads)
        return found

    def _computed(self, words: Sequence[Any], threads: int) -> tuple[Extent, ...]:
        if len(words) < self._least_words:
            raise ExtentError(f"The compiled task {self.name} takes {self._least_words} arguments and was given {len(words)}.")
        arguments = list(words)
        for place in self.pointers:
            is_deciding = place in self.deciding
            arguments[place] = MayBeAt.of(place, is_given=_is_given(words[place])) if is_deciding else place
        found = self._function(*arguments, threads=threads) if self._has_threads else self._function(*arguments)
        touched = {extent.position: extent for extent in found if extent.behind > 0 or extent.before > 0}
        return tuple(touched.get(place) or Extent(place, 0, may_be_none=True) for place in self.pointers)


def _is_given(word: Any) -> bool:
    """Whether there is an array, or an address that is not 0."""
    return word is not None and (not isinstance(word, int) or word != 0)


def _no_sizes(_arguments: Sequence[Any]) -> None:
    """Of a task whose extents are always the same."""


_declared: dict[tuple[str, str], Declaration] = {}


def declares(module: str, *names: str, words: int = 0) -> Callable[[Callable[..., Extents]], Callable[..., Extents]]:
    """Decorator of the function that says what tasks of a module touch.

    Args:
        module: name of the tasks' module.
        names: of tasks, which all take the same arguments.
        words: how many the tasks take at least; 0 for as many as the function names.
    """

    def declare(function: Callable[..., Extents]) -> Callable[..., Extents]:
        for name in names:
            declare_task(module, name, Declaration.of_function(f"{module}.{name}", function, words))
        return function

    return declare


def declare_task(module: str, name: str, declaration: Declaration) -> None:
    """Say what a task touches."""
    _declared[module, name] = declaration


def declaration_of(module: str, name: str) -> Declaration | None:
    """A task's declaration; None if it has none."""
    found = _declared.get((module, name))
    if found is None and module not in _looked_at:
        family = arguments_module(module) if "." in module else FAMILIES.get(module)
        if family is not None:
            # Another thread may be half through it: then this waits, and none takes the task for one without a declaration.
            importlib.import_module(f"ort_sdk_cpu.{family}")
        _looked_at.add(module)
        found = _declared.get((module, name))
    return found


_looked_at: set[str] = set()


def arguments_module(module: str) -> str:
    """Where the classes of arguments of a module's tasks are, below ``ort_sdk_cpu``."""
    family, _, name = module.rpartition(".")
    return f"{family}.arguments.{name}"


FAMILIES: dict[str, str] = {
    **dict.fromkeys(("matmul_nbits_activations", "matmul_nbits_transposition"), "gemm.nbits.extents"),
    **dict.fromkeys(("matmul_nbits_columns", "matmul_nbits_tiles"), "gemm.nbits.gemm_extents"),
    **dict.fromkeys(("matmul_nbits_panels_f32", "matmul_nbits_panels_i8"), "gemm.nbits.gemm_extents"),
    **dict.fromkeys(("matmul_nbits_rows_f32", "matmul_nbits_rows_i32", "matmul_nbits_rows_i8"), "gemm.nbits.gemm_extents"),
}
"""Name of a module of tasks → module of their declarations, below ``ort_sdk_cpu``."""
