"""Independent tasks that run at the same time, each on one thread of a team."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .native_call import IGNORE_STATUS, CallRow, NativeCall
from .task import TaskCall
from .task_code import ir_function, openmp_parallel

__all__ = ["IndependentTasks"]

_RUN = """
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
define void @run_independent(ptr %head) {
entry:
  %results = alloca [2 x ptr]
  %exception = getelementptr [2 x ptr], ptr %results, i64 0, i64 1
  %number = call i32 @omp_get_thread_num()
  %team = call i32 @omp_get_num_threads()
  %thread = sext i32 %number to i64
  %threads = sext i32 %team to i64
  %count = load i64, ptr %head
  br label %loop
loop:
  %i = phi i64 [ %thread, %entry ], [ %next, %run ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %run, label %done
run:
  %position = add i64 %i, 1
  %record_at = getelementptr i64, ptr %head, i64 %position
  %record = load ptr, ptr %record_at
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %status = call i32 %code(ptr %results, ptr %exception, i64 %address, i64 0, i64 1)
  %next = add i64 %i, %threads
  br label %loop
done:
  ret void
}
"""
"""Static scheduling: thread t runs the tasks t, t + threads, t + 2 threads ... of the array (count, addresses of records)."""


class IndependentTasks:
    """Runs tasks of one thread each at the same time. For one thread at a time; needs OpenMP.

    Args:
        calls: the tasks, each for one thread; they may be pointed at other arrays later.
    """

    def __init__(self, calls: Sequence[TaskCall]) -> None:
        self._calls = tuple(calls)
        # The row of a call with one thread is the function that runs a record, followed by the record's address.
        self._head = np.array([len(calls), *(call.row[1] for call in calls)], np.int64)
        self._threads = min(len(calls), libraries.thread_count())
        self.run: Callable[[], Any] = functools.partial(openmp_parallel(), _function(), address_of(self._head), self._threads, 0)
        """A call that runs all tasks; returns when they are done."""

    def bound_call(self, *arrays: Any) -> Callable[[], Any]:
        """The run as a call without arguments, which is native, and keeps this object and the arrays alive.

        Args:
            arrays: those that the tasks were pointed at.
        """
        call = functools.partial(self.run)
        call.keeps_alive = (self, arrays)  # type: ignore[attr-defined]
        call.native = NativeCall((self._row(),))  # type: ignore[attr-defined]
        return call

    def _row(self) -> CallRow:
        start = ctypes.cast(openmp_parallel(), ctypes.c_void_p).value or 0  # type: ignore[arg-type]
        return (start, _function(), address_of(self._head), self._threads, 0, IGNORE_STATUS)


@functools.cache
def _function() -> int:
    return ir_function("run_independent", _RUN)
