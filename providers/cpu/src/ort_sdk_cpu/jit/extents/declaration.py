"""Declarations: how many bytes a task accesses at each of its addresses, as a function of its other arguments.

A declaration is a function of the task's arguments, with positions in place of addresses; it yields an ``Extent`` for each
address that is accessed. Sizes are Python integers, so that no product of them overflows.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ort_sdk.api import ExtentError
from ort_sdk.api.data_classes import NamedTuple

__all__ = [
    "CONTIGUOUS",
    "KEPT_SIZES",
    "WRITEABLE",
    "Declaration",
    "Extent",
    "accesses",
    "arguments_module",
    "declaration_of",
    "declare_task",
    "reads",
    "reads_if_given",
    "require_at_most",
    "require_whole_vectors",
    "uses_workspace",
    "writes",
]


class NullablePosition(int):
    """Position of an address that may be 0 and that other extents depend on."""

    is_given: bool
    """Whether the address is not 0."""

    @classmethod
    def of(cls, position: int, *, is_given: bool) -> NullablePosition:
        """The position of an argument, with whether it is given."""
        made = cls(position)
        made.is_given = is_given
        return made


CONTIGUOUS, WRITEABLE = 0x1, 0x400
"""Bits of NumPy's flags."""
_TOO_LARGE = 1 << 63
"""More bytes than any array has, so that an extent with bytes before the address never passes the quick check."""


class Extent(NamedTuple):
    """The bytes that a task accesses at an address."""

    position: int
    """Position of the address among the task's arguments."""
    behind: int
    """Bytes from the address on."""
    before: int = 0
    """Bytes before the address."""
    is_written: bool = False
    may_be_none: bool = False
    """Whether the address may be 0, since the task tests it."""

    @property
    def least(self) -> int:
        """Bytes from which on a contiguous array with ``flags`` is large enough, without a look at its strides."""
        return _TOO_LARGE if self.before else self.behind

    @property
    def flags(self) -> int:
        """NumPy flags that an array must have to be checked by its bytes alone."""
        return CONTIGUOUS | (WRITEABLE if self.is_written else 0) if self.behind else 0


Extents = Iterable[Extent]


def reads(at: int, nbytes: int) -> Extent:
    """The task reads bytes from an address on.

    Args:
        at: position of the address.
        nbytes: how many; 0 or less for none.
    """
    return Extent(at, nbytes)


def reads_if_given(at: int, nbytes: int) -> Extent:
    """The task reads bytes from an address on, unless it is 0.

    Args:
        at: position of the address.
        nbytes: how many.
    """
    return Extent(at, nbytes, may_be_none=True)


def writes(at: int, nbytes: int, *, may_be_none: bool = False) -> Extent:
    """The task writes bytes from an address on, and may read them.

    Args:
        at: position of the address.
        nbytes: how many.
        may_be_none: whether the address may be 0.
    """
    return Extent(at, nbytes, is_written=True, may_be_none=may_be_none)


def uses_workspace(at: int, nbytes: int) -> Extent:
    """The task uses bytes from an address on as workspace.

    Args:
        at: position of the address.
        nbytes: how many.
    """
    return Extent(at, nbytes, is_written=True)


def accesses(
    at: int,
    sizes: Iterable[int],
    strides: Iterable[int],
    itemsize: int,
    *,
    offset: int = 0,
    is_written: bool = False,
    may_be_none: bool = False,
) -> Extent:
    """The task accesses the elements of a strided array.

    Args:
        at: position of the address.
        sizes: of the axes; no element is accessed if one of them is not positive.
        strides: bytes from one element to the next along each axis; may be negative.
        itemsize: bytes of an element.
        offset: bytes from the address to the first element.
        is_written: whether the elements are written.
        may_be_none: whether the address may be 0.
    """
    low = high = 0
    for size, stride in zip(sizes, strides, strict=True):
        if size <= 0:
            return Extent(at, 0, 0, is_written, may_be_none)
        if stride < 0:
            low -= (size - 1) * stride
        else:
            high += (size - 1) * stride
    return Extent(at, max(0, offset + high + itemsize), max(0, low - offset), is_written, may_be_none)


def require_at_most(name: str, count: int, most: int) -> None:
    """Require a count that fits into a task's fixed-size buffers.

    Args:
        name: what is counted, for the message.
        count: how many there are.
        most: how many fit.

    Raises:
        ExtentError: there are more.
    """
    if count > most:
        raise ExtentError(f"A compiled task has room for {most} {name} and was to be started with {count}.")


def require_whole_vectors(*sizes: int) -> None:
    """Require sizes that are multiples of a vector, of rows that a task accesses without a remainder loop.

    Args:
        sizes: in elements.

    Raises:
        ExtentError: one is not a multiple of 16.
    """
    for size in sizes:
        if size % 16:
            raise ExtentError(f"A compiled task takes rows of multiples of 16 elements and was to be started with {size}.")


KEPT_SIZES = 1024
"""Combinations of sizes whose extents are cached."""


class Declaration:
    """The extents of a task as a function of its arguments.

    Args:
        name: of the task, for messages.
        names: of its arguments.
        pointers: positions of those that are addresses.
        function: from all arguments, with positions in place of addresses, the extents; with a keyword parameter ``threads`` if
            they depend on the number of threads.
        deciding: positions of addresses on which it depends, whether they are 0, what the extents are.
        kinds: ``q`` for each argument that is an address or an integer, ``f`` for each float32.
        has_threads: whether the function takes the number of threads.
        has_tail: whether extents depend on arguments that have no name.
    """

    __slots__ = (
        "_function",
        "_has_tail",
        "_has_threads",
        "_kept",
        "_keys",
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
    ) -> None:
        self.name, self.names, self.pointers, self.deciding, self.kinds = name, names, pointers, deciding, kinds
        self._function, self._has_threads, self._has_tail = function, has_threads, has_tail
        self._keys: dict[int, Callable[[Sequence[Any]], Any]] = {}
        self._kept: dict[Any, tuple[Extent, ...]] = {}

    def key_of(self, count: int) -> Callable[[Sequence[Any]], Any]:
        """A function from the arguments to the key that their extents are cached by.

        Args:
            count: number of arguments.
        """
        last = count if self._has_tail else len(self.names)
        positions = [position for position in range(last) if position not in self.pointers]
        sizes: Callable[[Sequence[Any]], Any] = operator.itemgetter(*positions) if positions else _no_sizes
        if not self.deciding:
            return sizes
        return lambda words: (sizes(words), *[_is_given(words[position]) for position in self.deciding])

    def extents(self, words: Sequence[Any], threads: int) -> tuple[Extent, ...]:
        """The extents for some arguments: one for each address, in order.

        Args:
            words: all arguments, in order; values of addresses are ignored.
            threads: number of threads at most.

        Raises:
            ExtentError: the task does not support such sizes, or takes more arguments.
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
        if len(words) < len(self.names):
            raise ExtentError(f"The compiled task {self.name} takes {len(self.names)} arguments and was given {len(words)}.")
        arguments = list(words)
        for position in self.pointers:
            is_deciding = position in self.deciding
            arguments[position] = NullablePosition.of(position, is_given=_is_given(words[position])) if is_deciding else position
        found = self._function(*arguments, threads=threads) if self._has_threads else self._function(*arguments)
        accessed = {extent.position: extent for extent in found if extent.behind > 0 or extent.before > 0}
        return tuple(accessed.get(position) or Extent(position, 0, may_be_none=True) for position in self.pointers)


def _is_given(word: Any) -> bool:
    """Whether an argument is an array, or an address that is not 0."""
    return word is not None and (not isinstance(word, int) or word != 0)


def _no_sizes(_arguments: Sequence[Any]) -> None:
    """The key of a task whose extents are always the same."""


_declared: dict[tuple[str, str], Declaration] = {}


def declare_task(module: str, name: str, declaration: Declaration) -> None:
    """Register a task's declaration."""
    _declared[module, name] = declaration


def declaration_of(module: str, name: str) -> Declaration | None:
    """A task's declaration; None if it has none."""
    found = _declared.get((module, name))
    if found is None and module not in _imported:
        # The module is marked after the import: another thread that imports it now would find no declaration yet.
        importlib.import_module(f"ort_sdk_cpu.{arguments_module(module)}")
        _imported.add(module)
        found = _declared.get((module, name))
    return found


_imported: set[str] = set()


def arguments_module(module: str) -> str:
    """Module, below ``ort_sdk_cpu``, of the classes of arguments of a module's tasks."""
    family, _, name = module.rpartition(".")
    return f"{family}.arguments.{name}"
