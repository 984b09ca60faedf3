"""Launches: a kernel, how many groups of how many lanes, and its arguments. They know no vendor."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from string import Template
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import ExtentError
from ort_sdk.api.data_classes import dataclass

from .recently_used import RecentlyUsed

__all__ = [
    "Argument",
    "KernelSource",
    "Launch",
    "Memory",
    "MemoryPart",
    "Scalar",
    "filled_source",
    "index32",
    "index64",
    "packed_scalar",
]

MOST_DERIVED = 16
"""Pieces of memory that are kept of what kernels made of a constant: shapes of runs may be a part of it."""


class Memory:
    """A range of a device's memory, or, while launches are captured, one that is given a place when they are bound.

    Args:
        nbytes: its size.
        handle: the launcher's own; None for one that has no place yet.
    """

    __slots__ = ("__weakref__", "_derived", "handle", "is_constant", "nbytes", "readers")

    def __init__(self, nbytes: int, handle: Any = None) -> None:
        self.nbytes = nbytes
        self.handle = handle
        self.readers: list[Any] = []
        """Weak references to expressions that read it."""
        self.is_constant = False
        """Whether its contents never change, so that what kernels make of it may be kept."""
        self._derived: RecentlyUsed[Any, Memory] | None = None

    @property
    def place(self) -> tuple[Memory, int]:
        """The whole piece that it is a part of, and where it begins there, in bytes."""
        return self, 0

    @property
    def derived(self) -> RecentlyUsed[Any, Memory]:
        """What kernels have made of constant contents, by what they made."""
        if self._derived is None:
            self._derived = RecentlyUsed(MOST_DERIVED)
        return self._derived

    def exchange_derived(self, derived: RecentlyUsed[Any, Memory] | None) -> RecentlyUsed[Any, Memory] | None:
        """Let what kernels have made of it be something else, None for nothing; gives what it was."""
        before, self._derived = self._derived, derived
        return before

    def note_reader(self, expression: Any) -> None:
        """Remember an expression that reads it, so that it is computed before the memory is written again."""
        if len(self.readers) >= 16:
            self.readers = [each for each in self.readers if each() is not None]
        self.readers.append(weakref.ref(expression))


class MemoryPart(Memory):
    """A part of other memory, which it keeps alive.

    Args:
        nbytes: its size.
        handle: the launcher's own.
        whole: a piece that is no part.
        offset_bytes: where it begins there.
    """

    __slots__ = ("_place",)

    def __init__(self, nbytes: int, handle: Any, whole: Memory, offset_bytes: int) -> None:
        super().__init__(nbytes, handle)
        self._place = whole, offset_bytes

    @property
    def place(self) -> tuple[Memory, int]:
        return self._place


class Scalar(NamedTuple):
    """An argument that is a number."""

    type: str
    """``i32``, ``i64``, ``f32`` …"""
    value: float


def index32(value: int) -> Scalar:
    """A 32-bit argument.

    Raises:
        ExtentError: the number does not fit.
    """
    if not -(1 << 31) <= value < 1 << 31:
        raise ExtentError(f"launching a kernel with a 32-bit argument: {value} does not fit")
    return Scalar("i32", value)


def index64(value: int) -> Scalar:
    """A 64-bit argument."""
    return Scalar("i64", value)


Argument = Memory | Scalar


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel in the device language."""

    name: str
    """Of the kernel function."""
    text: str
    defines: tuple[tuple[str, str | int], ...] = ()


def filled_source(name: str, text: str, names: Mapping[str, str], defines: Mapping[str, str | int]) -> KernelSource:
    """A kernel whose text has names to be filled in.

    Args:
        name: of the kernel function.
        text: with ``$names``; one of a module's, which are few.
        names: for the text.
        defines: macros.
    """
    return _filled(name, text, tuple(names.items()), tuple(defines.items()))


@functools.lru_cache(maxsize=512)
def _filled(name: str, text: str, names: tuple[tuple[str, str], ...], defines: tuple[tuple[str, str | int], ...]) -> KernelSource:
    # Launches of a kernel mostly differ in numbers, which are no part of its text; filling it in takes longer than all the rest.
    return KernelSource(name, Template(text).substitute(dict(names)), defines)


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel with its arguments."""

    kernel: KernelSource
    groups: tuple[int, ...]
    """Work-groups along one to three dimensions; more than 65,535 along the first one only, as on CUDA."""
    lanes: tuple[int, ...]
    """Lanes of a work-group along as many dimensions."""
    arguments: tuple[Argument, ...]
    writes: tuple[int, ...]
    """Positions of the arguments that are written."""
    reports: bool = False
    """Whether the last parameter is the status word, which the launcher passes: there the kernel reports contents that it cannot
    take."""


_NUMPY: dict[str, Any] = {
    "i32": np.int32,
    "i64": np.int64,
    "u32": np.uint32,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}


def packed_scalar(scalar: Scalar) -> Any:
    """The number as NumPy's scalar of its type."""
    return _NUMPY[scalar.type](scalar.value)
