"""Sequences of tasks in one parallel region, with barriers only where a task reads what other threads wrote.

A sequence is an array of words. Header: number of tasks, number of threads, address of the stop flag, number of the task before
which the run stops (both 0 if it does not). Per task: offset of its record, and whether a barrier comes before it. Then the
records. Most words are constant; others are sums of numbers that depend on the shapes of a run.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.stopping import check_stopped, current
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .native_call import IGNORE_STATUS, CallRow
from .task import float_word
from .task_code import WORD_BYTES, ir_function, openmp_parallel, parallel_record, task_address

__all__ = ["HEADER_WORDS", "TASK_WORDS", "LinearTerms", "SequenceTemplate", "TaskWords", "TeamSequence", "Word", "run_sequence"]

LinearTerms = tuple[tuple[Hashable, int], ...]
"""A linear expression: (name of a number, factor) for each of its terms."""
Word = int | float | LinearTerms | HostArray | None
"""An integer, a float32, a linear expression, or the address of an array, 0 for None."""

HEADER_WORDS, TASK_WORDS = 4, 2
"""Words of the header, and of each task before the records."""
_STOP = 2
"""Index of the address of the stop flag, which the number of the task to stop before follows."""

_RUN = """
{declared}
define void @run_sequence(ptr %head) {{
entry:
  %results = alloca [2 x ptr]
  %exception = getelementptr [2 x ptr], ptr %results, i64 0, i64 1
  {threads}
  %count = load i64, ptr %head
  %planned_at = getelementptr i8, ptr %head, i64 8
  %planned = load i64, ptr %planned_at
  %is_other = icmp ne i64 %planned, %threads
  %stop_at = getelementptr i8, ptr %head, i64 16
  %stop_address = load i64, ptr %stop_at
  %stop = inttoptr i64 %stop_address to ptr
  %end_at = getelementptr i8, ptr %head, i64 24
  %may_stop = icmp ne i64 %stop_address, 0
  %leads = icmp eq i64 %thread, 0
  %checks = and i1 %may_stop, %leads
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %next, %run ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %ready, label %all
ready:
  %words = mul i64 %i, 16
  %from = add i64 %words, 32
  %offset_at = getelementptr i8, ptr %head, i64 %from
  %flag_at = getelementptr i8, ptr %offset_at, i64 8
  %offset = load i64, ptr %offset_at
  %flag = load i64, ptr %flag_at
  %is_marked = icmp ne i64 %flag, 0
  %waits = or i1 %is_marked, %is_other
  br i1 %waits, label %wait, label %run
wait:
  %number_of_step = add i64 %i, 1
  br i1 %checks, label %check, label %barrier
check:
  %flag_set = load atomic i64, ptr %stop monotonic, align 8
  %stops = icmp ne i64 %flag_set, 0
  br i1 %stops, label %publish, label %barrier
publish:
  store atomic i64 %number_of_step, ptr %end_at monotonic, align 8
  br label %barrier
barrier:
  {wait}
  %end = load atomic i64, ptr %end_at monotonic, align 8
  %ends = icmp eq i64 %end, %number_of_step
  br i1 %ends, label %all, label %run
run:
  %record = getelementptr i8, ptr %head, i64 %offset
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %status = call i32 %code(ptr %results, ptr %exception, i64 %address, i64 %thread, i64 %threads)
  %next = add i64 %i, 1
  br label %step
all:
  ret void
}}
"""
"""Only the first thread reads the stop flag, and publishes before which task all threads end: others might read it after it was
set, and leave a barrier that the first one waits at."""
_SERIAL = _RUN.format(declared="", threads="%thread = add i64 0, 0\n  %threads = add i64 0, 1", wait="")
_PARALLEL = _RUN.format(
    declared="declare i32 @omp_get_thread_num()\ndeclare i32 @omp_get_num_threads()\ndeclare void @GOMP_barrier()",
    threads="""%number = call i32 @omp_get_thread_num()
  %team = call i32 @omp_get_num_threads()
  %thread = sext i32 %number to i64
  %threads = sext i32 %team to i64""",
    wait="call void @GOMP_barrier()",
)


@dataclass(frozen=True, slots=True)
class TaskWords:
    """A task of a sequence, and its arguments."""

    module: str
    """Name of the task's module, ``<family>.<name>``."""
    name: str
    words: Sequence[Word]
    """Its arguments, in order."""


class SequenceTemplate:
    """The words of a sequence, as a template for the numbers of each run.

    Args:
        tasks: in order.
    """

    def __init__(self, tasks: Sequence[TaskWords]) -> None:
        self.count = len(tasks)
        words = [len(tasks), *[0] * (HEADER_WORDS - 1 + TASK_WORDS * len(tasks))]
        terms: list[tuple[int, int, int]] = []
        self._names: dict[Hashable, int] = {}
        """Name of a number → its index."""
        for index, task in enumerate(tasks):
            words[HEADER_WORDS + TASK_WORDS * index] = WORD_BYTES * len(words)
            words.append(task_address(task.module, task.name))
            for word in task.words:
                for name, factor in _factors(word).items() if isinstance(word, tuple) else ():
                    terms.append((len(words), self._names.setdefault(name, len(self._names)), factor))
                words.append(_constant(word))
        self._words = np.array(words, np.int64)
        self._targets, self._sources, self._factors = np.array(terms, np.int64).reshape(-1, 3).T.copy()
        """For each term, the index of its word, the index of its number, and its factor."""

    def filled(self, numbers: Mapping[Hashable, int], threads: int, waits: Sequence[bool]) -> HostArray:
        """The words for the numbers of a run.

        Args:
            numbers: by name.
            threads: size of the team that ``waits`` is right for; a team of another size has a barrier before every task.
            waits: for each task, whether a barrier comes before it.
        """
        words = self._words.copy()
        words[1] = threads
        words[HEADER_WORDS + 1 : HEADER_WORDS + TASK_WORDS * self.count : TASK_WORDS] = waits
        self.add(words, numbers.items())
        return words

    def add(self, words: HostArray, numbers: Iterable[tuple[Hashable, int]]) -> None:
        """Add numbers, times their factors, to the words that have them as terms.

        All are added by three NumPy calls, since each takes about 1 us.

        Args:
            words: as ``filled`` returned them.
            numbers: (name, number) pairs; those of other names are ignored.
        """
        names = self._names
        values = [0] * len(names)
        for name, number in numbers:
            index = names.get(name)
            if index is not None:
                values[index] += number
        np.add.at(words, self._targets, np.array(values, np.int64)[self._sources] * self._factors)


def _factors(word: LinearTerms) -> dict[Hashable, int]:
    """The factor of each number in a linear expression, with equal names merged."""
    found: dict[Hashable, int] = {}
    for name, factor in word:
        found[name] = found.get(name, 0) + factor
    return found


def _constant(word: Word) -> int:
    if isinstance(word, np.ndarray):
        return address_of(word)
    return float_word(word) if isinstance(word, float) else 0 if word is None or isinstance(word, tuple) else word


class TeamSequence:
    """Tasks on teams of the same size, joined into one parallel region with a barrier before each task.

    Args:
        rows: of the tasks; their records are referred to, not copied.
    """

    def __init__(self, rows: Sequence[CallRow]) -> None:
        threads = rows[0][3]
        self._words = np.zeros(HEADER_WORDS + TASK_WORDS * len(rows), np.int64)
        head = address_of(self._words)
        self._words[:HEADER_WORDS] = (len(rows), threads, 0, 0)
        self._words[HEADER_WORDS::TASK_WORDS] = [parallel_record(row) - head for row in rows]
        self._words[HEADER_WORDS + TASK_WORDS + 1 :: TASK_WORDS] = 1
        self.row: CallRow = (rows[0][0], _parallel(), head, threads, 0, IGNORE_STATUS)
        """The C function call that runs the sequence; valid as long as this object lives."""

    def watch(self, flag: int) -> None:
        """Set the address of the stop flag; 0 for none."""
        self._words[_STOP:HEADER_WORDS] = (flag, 0)


def run_sequence(words: HostArray, threads: int) -> None:
    """Run a sequence; returns when all tasks are done.

    Args:
        words: of the sequence, see ``RecordSequence.filled``.
        threads: size of the team; one thread runs it where there is no OpenMP.

    Raises:
        Fail: the run was stopped.
    """
    if current.address:
        words[_STOP:HEADER_WORDS] = (current.address, 0)
    if threads > 1 and libraries.has_openmp():
        openmp_parallel()(_parallel(), address_of(words), threads, 0)
    else:
        _serial()(address_of(words))
    if current.address:
        check_stopped()


@functools.cache
def _parallel() -> int:
    return ir_function("run_sequence", _PARALLEL)


@functools.cache
def _serial() -> Callable[[int], Any]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ir_function("run_sequence", _SERIAL))
