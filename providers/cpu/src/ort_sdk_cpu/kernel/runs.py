"""Copies of runs, each of which is contiguous in its target and in its source: by calls of ``memmove``, or by a task."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.native_call import IGNORE_STATUS, NativeCall
from ort_sdk_cpu.platform.addresses import address_of

from .arguments.runs import MODULE, CopyRuns
from .task_writer import is_worth_a_task

__all__ = [
    "MAX_OFFSETS",
    "WORD",
    "Pairs",
    "Runs",
    "RunsWriter",
    "addresses_of",
    "copied_by_memmove",
    "copied_by_task",
    "element_runs",
    "first_contiguous_axis",
    "runs_of_copies",
]

Pairs = Sequence[tuple[HostArray, HostArray]]
"""(target, source), of one shape and type, in the order in which they are copied; no two overlap."""
Runs = HostArray
"""int64 (count, 3): address of the target, address of the source, and bytes of each run, in the order of copying."""

FEW_RUNS = 8
"""Runs for which as many calls of ``memmove`` cost less than a task that goes over a list."""
MAX_RUNS = 1 << 12
"""Runs up to which a task goes over a list: of more, each some elements long, the list is as large as what is copied."""
MAX_OFFSETS = 1 << 18
"""Elements up to which the offset of each is computed to find their runs: two megabytes of int64."""
WORD = 4
"""Bytes that tasks move at a time."""
_INT64 = np.dtype(np.int64)


class RunsWriter:
    """A writer that moves elements to where a node's input 1 says, without a step of Python where that is constant.

    Args:
        info: the node.
        write: the writer for all arrays.
        runs: from the inputs and outputs, the runs; None for what the writer has to do.
        otherwise: from the same, a call on arrays that stay, for an input 1 that is not constant; None if there is none.
    """

    def __init__(
        self,
        info: KernelInfo,
        write: Callable[..., Any],
        runs: Callable[..., Runs | None],
        otherwise: Callable[..., Callable[[], Any] | None] | None = None,
    ) -> None:
        self._write, self._runs, self._otherwise, self._is_constant = write, runs, otherwise, 1 in info.constants

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        self._write(*arrays)

    def set_constant_inputs(self, constants: Collection[int]) -> None:
        """Inputs whose contents stay the same, too."""
        self._is_constant = self._is_constant or 1 in constants

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        if not self._is_constant:
            return None if self._otherwise is None else self._otherwise(*arrays)
        runs = self._runs(*arrays)
        if runs is not None and len(runs) <= FEW_RUNS:
            return copied_by_memmove(runs, functools.partial(_move, runs, arrays))
        return copied_by_task(runs)


def copied_by_memmove(runs: Runs, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that copies runs, with what replaces it where no Python is needed: ``memmove`` for each."""
    rows = tuple((_memmove(), to, from_, size, 0, IGNORE_STATUS) for to, from_, size in runs.tolist())
    call.native = NativeCall(rows)  # type: ignore[attr-defined]
    return call


def _move(runs: Runs, _kept: Sequence[Any]) -> None:
    for to, from_, size in runs.tolist():
        ctypes.memmove(to, from_, size)


def copied_by_task(runs: Runs | None) -> Callable[[], Any] | None:
    """A task's call that copies runs; None for none that are known, for those of bytes, and where no task is worth it."""
    if runs is None or (runs[:, 2] % WORD).any():
        return None
    if not is_worth_a_task(int(runs[:, 2].sum()) // WORD, MODULE, "copy_runs"):
        return None
    from ort_sdk_cpu.jit.task import TaskCall

    table = np.ascontiguousarray(runs // [1, 1, WORD])
    return TaskCall(MODULE, "copy_runs", CopyRuns(table, len(table))).bound_call(table)


def runs_of_copies(pairs: Pairs) -> Runs | None:
    """The runs of copies of whole arrays; None for too many."""
    found: list[Runs] = [np.empty((0, 3), _INT64)]
    for target, source in pairs:
        axis = first_contiguous_axis(target, source)
        if sum(map(len, found)) + math.prod(target.shape[:axis]) > MAX_RUNS:
            return None
        size = math.prod(target.shape[axis:]) * target.itemsize
        starts = [addresses_of(array, axis) for array in (target, source)]
        found.append(np.stack([*starts, np.full(len(starts[0]), size)], axis=1))
    return np.concatenate(found)


def element_runs(target: HostArray, source: HostArray, itemsize: int) -> Runs | None:
    """The runs of elements that go from some addresses to others; None for too many.

    Args:
        target: int64 (count): addresses in the order of copying.
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
    """Addresses of the elements in row-major order, or of the sub-arrays along the first axes: int64 (count)."""
    starts: HostArray = np.array([address_of(array)], _INT64)
    for size, stride in zip(array.shape[:axes], array.strides[:axes], strict=True):
        starts = (starts[:, None] + np.arange(size) * stride).reshape(-1)
    return starts


def first_contiguous_axis(target: HostArray, source: HostArray) -> int:
    """The axis from which on both are contiguous, in the same order of elements."""
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
