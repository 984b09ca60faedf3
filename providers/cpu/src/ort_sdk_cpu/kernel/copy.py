"""Copies between arrays that stay: as calls of the C library or a task, which steps before and behind can be joined with."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.native_call import NO_BITS, NativeCall, in_turn
from ort_sdk_cpu.platform.addresses import address_of

from .arguments.copy import MODULE as STRIDED
from .arguments.copy import StridedCopy
from .arguments.runs import MODULE as RUNS
from .arguments.runs import CopyRuns
from .layouts.strided_copy import copy_at_once, strided_copy
from .task_writer import is_worth_a_task, threads_for

__all__ = [
    "MAX_PLACES",
    "MIN_COPIED",
    "WORD",
    "CopyWriter",
    "Pairs",
    "Runs",
    "addresses_of",
    "copy_elements",
    "element_runs",
    "moving",
    "plain_runs",
]

Pairs = Sequence[tuple[HostArray, HostArray]]
"""(target, source), of one shape and type, in the order in which they are copied; no two overlap."""
Runs = HostArray
"""int64, (count, 3): addresses of target and source, and bytes of each piece that is one in both, in the order of copying."""

FEW_RUNS = 8
"""Runs for which calls of the C library cost less than a task."""
MAX_ROWS = 160
"""Runs up to which as many calls cost less than a step of its own; each takes some nanoseconds."""
MAX_RUNS = 1 << 12
"""Runs up to which a task goes over their addresses; the list of more would take more memory than it is worth."""
COPIED_AT_ONCE = 4
"""Elements whose copying takes as long as computing one."""
MIN_COPIED = 1 << 14
"""Elements from which on a task copies arrays that are others in each call faster than NumPy."""
MAX_PLACES = 1 << 18
"""Elements up to which the place of each is worked out, to see what runs they make."""
WORD = 4
"""Bytes that tasks take at a time."""
_INT64 = np.dtype(np.int64)


class CopyWriter:
    """A writer that copies.

    Args:
        pairs: from the inputs and outputs, what is copied where.
    """

    def __init__(self, pairs: Callable[..., Pairs]) -> None:
        self._pairs = pairs

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        for target, source in self._pairs(*arrays):
            copy_elements(target, source)

    def fixed(self, *arrays: Any) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        pairs = self._pairs(*arrays)

        def copy() -> None:
            for target, source in pairs:
                target[...] = source

        runs = plain_runs(pairs)
        if runs is None or len(runs) > MAX_ROWS:
            return _strided(pairs) or _task(runs) or copy
        return _copies(runs, copy)


def copy_elements(target: HostArray, source: HostArray) -> None:
    """Copy between arrays of one shape and type that do not overlap, large ones by a task."""
    if not _copied_by_task(target, source):
        target[...] = source


def moving(
    info: KernelInfo,
    write: Callable[..., Any],
    runs: Callable[..., Runs | None],
    otherwise: Callable[..., Callable[[], Any] | None] | None = None,
) -> Callable[..., Any]:
    """A writer that moves elements to where a node's input 1 says: needs no Python where that is constant.

    Args:
        info: the node.
        write: the writer.
        runs: from the inputs and outputs, what is moved; None for what the writer has to do.
        otherwise: from the same, a call on arrays that stay, for an input 1 that is not constant; None if there is none.
    """
    return _MovingWriter(write, runs, otherwise, is_constant=1 in info.constants)


class _MovingWriter:
    def __init__(
        self,
        write: Callable[..., Any],
        runs: Callable[..., Runs | None],
        otherwise: Callable[..., Callable[[], Any] | None] | None,
        *,
        is_constant: bool,
    ) -> None:
        self._write, self._runs, self._otherwise, self._is_constant = write, runs, otherwise, is_constant

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        self._write(*arrays)

    def know(self, constants: Collection[int]) -> None:
        """Inputs whose contents stay the same, too."""
        self._is_constant = self._is_constant or 1 in constants

    def fixed(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        if not self._is_constant:
            return None if self._otherwise is None else self._otherwise(*arrays)
        runs = self._runs(*arrays)
        return _few_copies(runs, arrays) or _task(runs)


def _few_copies(runs: Runs | None, arrays: Sequence[Any]) -> Callable[[], Any] | None:
    """A call that moves runs, for so few that calls of the C library cost less than a task that goes over a list."""
    if runs is None or len(runs) > FEW_RUNS:
        return None
    return _copies(runs, functools.partial(_move, runs, arrays))


def _copies(runs: Runs, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that copies runs, told how it needs no Python."""
    rows = tuple((_memmove(), to, from_, size, 0, NO_BITS) for to, from_, size in runs.tolist())
    call.native = NativeCall(rows)  # type: ignore[attr-defined]
    return call


def _move(runs: Runs, _kept: Sequence[Any]) -> None:
    for to, from_, size in runs.tolist():
        ctypes.memmove(to, from_, size)


def plain_runs(pairs: Pairs) -> Runs | None:
    """The runs of copies; None for too many."""
    found: list[Runs] = [np.empty((0, 3), _INT64)]
    for target, source in pairs:
        axis = _first_joint_axis(target, source)
        if sum(map(len, found)) + math.prod(target.shape[:axis]) > MAX_RUNS:
            return None
        size = math.prod(target.shape[axis:]) * target.itemsize
        starts = [addresses_of(array, axis) for array in (target, source)]
        found.append(np.stack([*starts, np.full(len(starts[0]), size)], axis=1))
    return np.concatenate(found)


def element_runs(target: HostArray, source: HostArray, itemsize: int) -> Runs | None:
    """The runs of elements that go from some addresses to others; None for too many.

    Args:
        target: int64, (count,): addresses in the order of copying.
        source: the same.
        itemsize: bytes of an element.
    """
    is_first = (np.diff(target, prepend=-1) != itemsize) | (np.diff(source, prepend=-1) != itemsize)
    firsts = np.flatnonzero(is_first)
    if len(firsts) > MAX_RUNS:
        return None
    counts = np.diff(firsts, append=len(target))
    return np.stack([target[firsts], source[firsts], counts * itemsize], axis=1)


def addresses_of(array: HostArray, axes: int | None = None) -> HostArray:
    """Addresses of the elements in row-major order, or of the pieces before an axis: int64, (count,)."""
    starts: HostArray = np.array([address_of(array)], _INT64)
    for size, stride in zip(array.shape[:axes], array.strides[:axes], strict=True):
        starts = (starts[:, None] + np.arange(size) * stride).reshape(-1)
    return starts


def _copied_by_task(target: HostArray, source: HostArray) -> bool:
    """Whether a task has copied an array: a large one that does not lie in one piece in both. NumPy repeats elements as fast."""
    if target.size < MIN_COPIED or not source.strides[-1] or not is_worth_a_task(target.size):
        return False
    if not _first_joint_axis(target, source):
        return False
    return copy_at_once(target, source, threads_for(target.size // COPIED_AT_ONCE))


def _strided(pairs: Pairs) -> Callable[[], Any] | None:
    """Tasks' calls that go over the arrays' axes; None where one cannot be copied so, or all are too small."""
    if not is_worth_a_task(sum(target.size for target, _ in pairs), STRIDED, "copy_rows_x32"):
        return None
    calls = []
    for target, source in pairs:
        threads = threads_for(target.size // COPIED_AT_ONCE)
        task = strided_copy(target.shape, target.strides, source.strides, target.itemsize, threads)
        if task is None:
            return None
        task.point(StridedCopy.target, target)
        task.point(StridedCopy.source, source)
        calls.append(task.kept(target, source))
    return in_turn(calls)


def _task(runs: Runs | None) -> Callable[[], Any] | None:
    """A task's call that moves runs; None for none that are known, and where there is no compiler, or bytes are moved."""
    if runs is None or (runs[:, 2] % WORD).any():
        return None
    if not is_worth_a_task(int(runs[:, 2].sum()) // WORD, RUNS, "copy_runs"):
        return None
    from ort_sdk_cpu.jit.task import TaskCall

    table = np.ascontiguousarray(runs // [1, 1, WORD])
    return TaskCall(RUNS, "copy_runs", CopyRuns(table, len(table))).kept(table)


def _first_joint_axis(target: HostArray, source: HostArray) -> int:
    """The axis from which on elements lie without gaps in both, in the same order."""
    axis, span = target.ndim, target.itemsize
    while axis:
        size = target.shape[axis - 1]
        if size > 1 and not target.strides[axis - 1] == source.strides[axis - 1] == span:
            break
        axis, span = axis - 1, span * size
    return axis


@functools.cache
def _memmove() -> int:
    return ctypes.cast(ctypes.CDLL(None).memmove, ctypes.c_void_p).value or 0
