"""Neighbouring native calls, driven by one call into compiled code.

Each call from Python takes about as long as a task on a few thousand elements. A bound call that consists of C function calls
with fixed arguments has them in its attribute ``native``; neighbours that all have it become one :class:`CallList`.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api.stopping import check_stopped, current
from ort_sdk_cpu.memory.workspace import growth
from ort_sdk_cpu.platform import libraries, threads
from ort_sdk_cpu.platform.addresses import address_of

from .native_call import CallRow, NativeCall

if TYPE_CHECKING:
    from .task_sequence import TeamSequence

__all__ = ["CallList", "join_calls"]

LEAST_CALLS = 2

_ROW_BYTES = 48
_RUN = f"""
define i64 @run_calls(ptr %rows, i64 %count, ptr %stop) {{
entry:
  %may_stop = icmp ne ptr %stop, null
  br label %next_call
next_call:
  %i = phi i64 [ 0, %entry ], [ %next, %done ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %ready, label %all
ready:
  br i1 %may_stop, label %check, label %call
check:
  %flag = load atomic i64, ptr %stop monotonic, align 8
  %stops = icmp ne i64 %flag, 0
  br i1 %stops, label %all, label %call
call:
  %offset = mul i64 %i, {_ROW_BYTES}
  %row = getelementptr i8, ptr %rows, i64 %offset
  %function = load ptr, ptr %row
  %p0 = getelementptr i8, ptr %row, i64 8
  %p1 = getelementptr i8, ptr %row, i64 16
  %p2 = getelementptr i8, ptr %row, i64 24
  %p3 = getelementptr i8, ptr %row, i64 32
  %p4 = getelementptr i8, ptr %row, i64 40
  %a0 = load i64, ptr %p0
  %a1 = load i64, ptr %p1
  %a2 = load i64, ptr %p2
  %a3 = load i64, ptr %p3
  %mask = load i64, ptr %p4
  %status = call i32 %function(i64 %a0, i64 %a1, i64 %a2, i64 %a3)
  %wide = zext i32 %status to i64
  %bad = and i64 %wide, %mask
  %fails = icmp ne i64 %bad, 0
  br i1 %fails, label %failed, label %done
done:
  %next = add i64 %i, 1
  br label %next_call
failed:
  ret i64 %i
all:
  ret i64 -1
}}
"""
"""Makes the calls of an array of rows; returns the index of the first that failed, or -1. Ends early if the stop flag is set."""


class CallList:
    """Makes native calls, one after the other. For one thread at a time.

    Args:
        calls: each with an attribute ``native``.
    """

    __slots__ = ("_address", "_calls", "_count", "_owners", "_prepares", "_rows", "_run", "_sequences", "_watched", "failed")

    def __init__(self, calls: Sequence[Any]) -> None:
        natives: list[NativeCall] = [call.native for call in calls]
        self._calls = tuple(calls)
        self._prepares = tuple(native.prepare for native in natives if native.prepare is not None)
        rows, self._owners, self._sequences = _with_sequences(natives)
        self._rows = np.array(rows, dtype=np.uint64)
        self._address, self._count = address_of(self._rows), len(rows)
        self._run, self._watched = _function(), 0
        self.failed = 0
        """Index of the call that failed last."""

    def __call__(self) -> None:
        """Run; all outputs are written when it returns.

        Raises:
            RuntimeException: a function failed.
            Fail: the run was stopped.
        """
        # Without parallel regions some calls compute in another way than their rows.
        if threads.is_serial():
            self._run_from(0)
            return
        self._prepare()
        flag = current.address
        if flag or self._watched:
            self._watch(flag)
        row = self._run(self._address, self._count, flag)
        if row >= 0:
            # The call that failed is repeated from Python, where it raises its error.
            self._run_from(self._owners[row])
        if flag:
            check_stopped()

    def _prepare(self) -> None:
        """Point all tasks at this thread's workspace."""
        before = growth.generation
        for prepare in self._prepares:
            prepare()
        if growth.generation is not before:
            # A later call enlarged a shared buffer, which invalidated earlier addresses; now it is large enough for all.
            for prepare in self._prepares:
                prepare()

    def _watch(self, flag: int) -> None:
        """Set the address of the stop flag in sequences; 0 for none."""
        self._watched = flag
        for sequence in self._sequences:
            sequence.watch(flag)

    def _run_from(self, first: int) -> None:
        for position in range(first, len(self._calls)):
            if current.address:
                check_stopped()
            self.failed = position
            self._calls[position]()


def _with_sequences(natives: Sequence[NativeCall]) -> tuple[list[CallRow], list[int], list[TeamSequence]]:
    """Join neighbouring tasks on teams of the same size, which cannot fail, into sequences.

    Returns:
        The rows, the index of each row's call, and the sequences among them, which have to be kept alive.
    """
    from .task_code import parallel_record
    from .task_sequence import TeamSequence

    owned = [(row, position) for position, native in enumerate(natives) for row in native.rows]
    rows: list[CallRow] = []
    owners: list[int] = []
    sequences: list[TeamSequence] = []
    for threads_of_team, group in itertools.groupby(owned, lambda each: each[0][3] if parallel_record(each[0]) else 0):
        found, positions = zip(*group, strict=True)
        if threads_of_team and len(found) > 1:
            sequences.append(TeamSequence(found))
            found, positions = (sequences[-1].row,), positions[:1]
        rows += found
        owners += positions
    return rows, owners, sequences


def join_calls(calls: Sequence[Callable[[], Any]]) -> list[tuple[int, Callable[[], Any]]]:
    """Join neighbouring native calls.

    Args:
        calls: bound calls, in order.

    Returns:
        (number of calls, one call that does the same), in order.
    """
    joined: list[tuple[int, Callable[[], Any]]] = []
    group: list[Callable[[], Any]] = []
    for call in (*calls, None):
        if call is not None and getattr(call, "native", None) is not None:
            group.append(call)
            continue
        joined += [(len(group), CallList(group))] if len(group) >= LEAST_CALLS and _can_run() else [(1, each) for each in group]
        group = []
        if call is not None:
            joined.append((1, call))
    return joined


def _can_run() -> bool:
    return libraries.compiled_kernels().is_usable


@functools.cache
def _function() -> Callable[[int, int, int], int]:
    from .task_code import ir_function

    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(ir_function("run_calls", _RUN))
