"""Tasks one after the other on one team of threads, which starts once and waits only where a task needs what others wrote.

A sequence is a row of words: their number of tasks and threads, where the flag is that stops the run, and before which task it
stops (both 0 if it does not); for each task where its record is and whether the team waits for all its threads first; then the
records. Most words stay; others are sums of numbers that are told for each shape.
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

from .native_call import NO_BITS, Row
from .task import WORD, entry, float_word, start_of_teams, task_address, team_record

__all__ = ["HEAD_WORDS", "STEP_WORDS", "RecordSequence", "TaskWords", "TeamSequence", "Terms", "Word", "run_sequence"]

Terms = tuple[tuple[Hashable, int], ...]
"""A word that is a sum: names of numbers, and their factors."""
Word = int | float | Terms | HostArray | None
"""A number, a sum, or an array whose address it is, 0 for None."""

HEAD_WORDS, STEP_WORDS = 4, 2
"""Words before the steps', and of a step before the records."""
_STOP = 2
"""First of the words about stopping."""

_RUN = """
{declared}
define void @run_sequence(ptr %head) {{
entry:
  %places = alloca [2 x ptr]
  %second = getelementptr [2 x ptr], ptr %places, i64 0, i64 1
  {threads}
  %count = load i64, ptr %head
  %planned_at = getelementptr i8, ptr %head, i64 8
  %planned = load i64, ptr %planned_at
  %is_other = icmp ne i64 %planned, %parts
  %stop_at = getelementptr i8, ptr %head, i64 16
  %stop_address = load i64, ptr %stop_at
  %stop = inttoptr i64 %stop_address to ptr
  %end_at = getelementptr i8, ptr %head, i64 24
  %may_stop = icmp ne i64 %stop_address, 0
  %leads = icmp eq i64 %part, 0
  %looks = and i1 %may_stop, %leads
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %next, %run ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %ready, label %all
ready:
  %words = mul i64 %i, 16
  %from = add i64 %words, 32
  %where_at = getelementptr i8, ptr %head, i64 %from
  %flag_at = getelementptr i8, ptr %where_at, i64 8
  %where = load i64, ptr %where_at
  %flag = load i64, ptr %flag_at
  %is_marked = icmp ne i64 %flag, 0
  %waits = or i1 %is_marked, %is_other
  br i1 %waits, label %wait, label %run
wait:
  %number_of_step = add i64 %i, 1
  br i1 %looks, label %look, label %meet
look:
  %flag_set = load atomic i64, ptr %stop monotonic, align 8
  %stops = icmp ne i64 %flag_set, 0
  br i1 %stops, label %tell, label %meet
tell:
  store atomic i64 %number_of_step, ptr %end_at monotonic, align 8
  br label %meet
meet:
  {wait}
  %end = load atomic i64, ptr %end_at monotonic, align 8
  %ends = icmp eq i64 %end, %number_of_step
  br i1 %ends, label %all, label %run
run:
  %record = getelementptr i8, ptr %head, i64 %where
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %status = call i32 %code(ptr %places, ptr %second, i64 %address, i64 %part, i64 %parts)
  %next = add i64 %i, 1
  br label %step
all:
  ret void
}}
"""
"""The first thread looks at the flag and tells before which task all end: others may look later, when it has been set."""
_ALONE = _RUN.format(declared="", threads="%part = add i64 0, 0\n  %parts = add i64 0, 1", wait="")
_OF_A_TEAM = _RUN.format(
    declared="declare i32 @omp_get_thread_num()\ndeclare i32 @omp_get_num_threads()\ndeclare void @GOMP_barrier()",
    threads="""%number = call i32 @omp_get_thread_num()
  %team = call i32 @omp_get_num_threads()
  %part = sext i32 %number to i64
  %parts = sext i32 %team to i64""",
    wait="call void @GOMP_barrier()",
)


@dataclass(frozen=True, slots=True)
class TaskWords:
    """A task and its arguments."""

    module: str
    name: str
    words: Sequence[Word]


class RecordSequence:
    """The words of a sequence.

    Args:
        tasks: in order.
    """

    def __init__(self, tasks: Sequence[TaskWords]) -> None:
        self.count = len(tasks)
        words = [len(tasks), *[0] * (HEAD_WORDS - 1 + STEP_WORDS * len(tasks))]
        places: list[tuple[int, int, int]] = []
        self._names: dict[Hashable, int] = {}
        """Name of a number → its place among all."""
        for index, task in enumerate(tasks):
            words[HEAD_WORDS + STEP_WORDS * index] = WORD * len(words)
            words.append(task_address(task.module, task.name))
            for word in task.words:
                for name, factor in _factors(word).items() if isinstance(word, tuple) else ():
                    places.append((len(words), self._names.setdefault(name, len(self._names)), factor))
                words.append(_constant(word))
        self._words = np.array(words, np.int64)
        self._places, self._sources, self._by = np.array(places, np.int64).reshape(-1, 3).T.copy()
        """Words that numbers are added to, which ones, and times what."""

    def filled(self, numbers: Mapping[Hashable, int], threads: int, waits: Sequence[bool]) -> HostArray:
        """The words with some numbers added.

        Args:
            numbers: by name.
            threads: of the team for which ``waits`` is right; another one waits before every task.
            waits: for each task, whether all threads have to be done with those before it.
        """
        words = self._words.copy()
        words[1] = threads
        words[HEAD_WORDS + 1 : HEAD_WORDS + STEP_WORDS * self.count : STEP_WORDS] = waits
        self.add(words, numbers.items())
        return words

    def add(self, words: HostArray, numbers: Iterable[tuple[Hashable, int]]) -> None:
        """Add numbers, by name, to all words that they are part of: all at once, as each of NumPy's calls takes a microsecond."""
        names = self._names
        values = [0] * len(names)
        for name, number in numbers:
            place = names.get(name)
            if place is not None:
                values[place] += number
        np.add.at(words, self._places, np.array(values, np.int64)[self._sources] * self._by)


def _factors(word: Terms) -> dict[Hashable, int]:
    """What each number of a sum is multiplied by: one that is there twice is added once."""
    found: dict[Hashable, int] = {}
    for name, factor in word:
        found[name] = found.get(name, 0) + factor
    return found


def _constant(word: Word) -> int:
    if isinstance(word, np.ndarray):
        return address_of(word)
    return float_word(word) if isinstance(word, float) else 0 if word is None or isinstance(word, tuple) else word


class TeamSequence:
    """Tasks that teams of the same size do one after the other, done by one team.

    Args:
        rows: that call them; their records stay where they are.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        threads = rows[0][3]
        self._words = np.zeros(HEAD_WORDS + STEP_WORDS * len(rows), np.int64)
        head = address_of(self._words)
        self._words[:HEAD_WORDS] = (len(rows), threads, 0, 0)
        self._words[HEAD_WORDS::STEP_WORDS] = [team_record(row) - head for row in rows]
        self._words[HEAD_WORDS + STEP_WORDS + 1 :: STEP_WORDS] = 1
        self.row: Row = (rows[0][0], _of_a_team(), head, threads, 0, NO_BITS)
        """Does all of them; as long as this object lives."""

    def watch(self, flag: int) -> None:
        """Look at the flag at this address from now on, or at none (0)."""
        self._words[_STOP:HEAD_WORDS] = (flag, 0)


def run_sequence(words: HostArray, threads: int) -> None:
    """Do all tasks; returns when they are done.

    Raises:
        Fail: the run was stopped.
    """
    if current.address:
        words[_STOP:HEAD_WORDS] = (current.address, 0)
    if threads > 1 and libraries.has_openmp():
        start_of_teams()(_of_a_team(), address_of(words), threads, 0)
    else:
        _alone()(address_of(words))
    if current.address:
        check_stopped()


@functools.cache
def _of_a_team() -> int:
    return entry("run_sequence", _OF_A_TEAM)


@functools.cache
def _alone() -> Callable[[int], Any]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry("run_sequence", _ALONE))
