"""Copies between layouts, by ``memmove``, by a task or by NumPy."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import in_sequence

from .arguments.copy import MODULE, StridedCopy
from .layouts.strided_copy import copy_at_once, strided_copy
from .runs import Pairs, Runs, copied_by_memmove, copied_by_task, first_contiguous_axis, runs_of_copies
from .task_writer import is_worth_a_task, threads_for
from .writer import Writer

__all__ = ["COPIES_PER_ELEMENT", "MIN_COPIED", "CopyAlgorithm", "CopyMaker", "CopyWriter", "copy_elements"]

MAX_MEMMOVES = 160
"""Runs up to which as many calls of ``memmove``, some nanoseconds each, cost less than a step of a program of its own."""
COPIES_PER_ELEMENT = 4
"""Elements whose copying takes as long as a few instructions for one: what ``threads_for`` counts."""
MIN_COPIED = 1 << 14
"""Elements from which on a task copies arrays that are others in each call faster than NumPy: it is chosen anew each time."""


class CopyAlgorithm(enum.Enum):
    """How arrays that stay are copied."""

    MEMMOVE = "memmove"
    """A call for each run."""
    STRIDED = "strided copy"
    """A task over the axes; see ``kernel.layouts.strided_copy``."""
    RUNS = "copy of runs"
    """A task over a list of runs."""
    NUMPY = "numpy"


class CopyWriter:
    """A writer that copies.

    Args:
        pairs: from the inputs and outputs, what is copied where.
    """

    def __init__(self, pairs: Callable[..., Pairs]) -> None:
        self._pairs = pairs
        self.algorithm: str | None = None
        """Of arrays that stay."""

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        for target, source in self._pairs(*arrays):
            copy_elements(target, source)

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        pairs = self._pairs(*arrays)

        def copy() -> None:
            for target, source in pairs:
                target[...] = source

        algorithm, call = _fixed(pairs, runs_of_copies(pairs), copy)
        self.algorithm = algorithm.value
        return call


def _fixed(pairs: Pairs, runs: Runs | None, copy: Callable[[], Any]) -> tuple[CopyAlgorithm, Callable[[], Any]]:
    """The algorithm for arrays that stay, and its call: ``copy`` where NumPy copies them."""
    if runs is not None and len(runs) <= MAX_MEMMOVES:
        return CopyAlgorithm.MEMMOVE, copied_by_memmove(runs, copy)
    if (call := _strided(pairs)) is not None:
        return CopyAlgorithm.STRIDED, call
    if (call := copied_by_task(runs)) is not None:
        return CopyAlgorithm.RUNS, call
    return CopyAlgorithm.NUMPY, copy


class CopyMaker:
    """A ``MakeWriter`` of copies, which tells the algorithm of the last.

    Args:
        pairs: from the inputs and outputs, what is copied where.
    """

    def __init__(self, pairs: Callable[..., Pairs]) -> None:
        self._pairs = pairs
        self._last: CopyWriter | None = None

    def __call__(self, _inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        """The writer, for arrays of any shape."""
        self._last = CopyWriter(self._pairs)
        return self._last

    @property
    def algorithm(self) -> str | None:
        """Name of the last writer's algorithm; None before it has arrays that stay."""
        return None if self._last is None else self._last.algorithm


def copy_elements(target: HostArray, source: HostArray) -> None:
    """Copy between arrays of one shape and type that do not overlap, large ones by a task."""
    if not _copied_by_task(target, source):
        target[...] = source


def _copied_by_task(target: HostArray, source: HostArray) -> bool:
    """Whether a task has copied an array: a large one that is not contiguous in both. NumPy broadcasts as fast."""
    if target.size < MIN_COPIED or not source.strides[-1] or not is_worth_a_task(target.size):
        return False
    if not first_contiguous_axis(target, source):
        return False
    return copy_at_once(target, source, threads_for(target.size // COPIES_PER_ELEMENT))


def _strided(pairs: Pairs) -> Callable[[], Any] | None:
    """Tasks' calls that go over the arrays' axes; None where one cannot be copied so, or all are too small."""
    if not is_worth_a_task(sum(target.size for target, _ in pairs), MODULE, "copy_rows_x32"):
        return None
    calls = []
    for target, source in pairs:
        threads = threads_for(target.size // COPIES_PER_ELEMENT)
        task = strided_copy(target.shape, target.strides, source.strides, target.itemsize, threads)
        if task is None:
            return None
        task.point(StridedCopy.target, target)
        task.point(StridedCopy.source, source)
        calls.append(task.bound_call(target, source))
    return in_sequence(calls)
