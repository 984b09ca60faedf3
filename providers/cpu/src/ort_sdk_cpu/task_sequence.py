"""Tasks one after the other on one team of threads, which starts once and waits only where a task needs what others wrote.

A sequence is a row of words: their number of tasks and threads, for each task where its record is and whether the team waits
for all its threads first, then the records. Most words stay; others are sums of numbers that are told for each shape.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass

from . import libraries
from .addresses import address_of
from .machine_code import WORD, entry, float_word, start_of_teams, task_address, team_record
from .native_call import NO_BITS, Row

__all__ = ["HEAD_WORDS", "STEP_WORDS", "RecordSequence", "TaskWords", "TeamSequence", "Terms", "Word", "run_sequence"]

Terms = tuple[tuple[Hashable, int], ...]
"""A word that is a sum: names of numbers, and their factors."""
Word = int | float | Terms

HEAD_WORDS, STEP_WORDS = 2, 2
"""Words before the steps', and of a step before the records."""
FEW_PLACES = 6
"""Places that are looked up one by one in less time than NumPy takes to."""

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
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %next, %run ]
  %words = mul i64 %i, 16
  %from = add i64 %words, 16
  %where_at = getelementptr i8, ptr %head, i64 %from
  %flag_at = getelementptr i8, ptr %where_at, i64 8
  %where = load i64, ptr %where_at
  %flag = load i64, ptr %flag_at
  %is_marked = icmp ne i64 %flag, 0
  %waits = or i1 %is_marked, %is_other
  br i1 %waits, label %wait, label %run
wait:
  {wait}
  br label %run
run:
  %record = getelementptr i8, ptr %head, i64 %where
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %status = call i32 %code(ptr %places, ptr %second, i64 %address, i64 %part, i64 %parts)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %step, label %all
all:
  ret void
}}
"""
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
        words = [len(tasks), 0, *[0] * (STEP_WORDS * len(tasks))]
        places: dict[Hashable, list[tuple[int, int]]] = {}
        for index, task in enumerate(tasks):
            words[HEAD_WORDS + STEP_WORDS * index] = WORD * len(words)
            words.append(task_address(task.module, task.name))
            for word in task.words:
                for name, factor in word if isinstance(word, tuple) else ():
                    places.setdefault(name, []).append((len(words), factor))
                words.append(_constant(word))
        self._words = np.array(words, np.int64)
        self._few = {name: found for name, found in places.items() if len(found) <= FEW_PLACES}
        self._places = {name: np.array(found, np.int64).T for name, found in places.items() if len(found) > FEW_PLACES}

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
        for name, number in numbers.items():
            self.add(words, name, number)
        return words

    def add(self, words: HostArray, name: Hashable, number: int) -> None:
        """Add a number to all words that it is part of."""
        few = self._few.get(name)
        if few is not None:
            for place, factor in few:
                words[place] += factor * number
            return
        found = self._places.get(name)
        if found is not None and number:
            places, factors = found
            words[places] += factors * number


def _constant(word: Word) -> int:
    return float_word(word) if isinstance(word, float) else 0 if isinstance(word, tuple) else word


class TeamSequence:
    """Tasks that teams of the same size do one after the other, done by one team.

    Args:
        rows: that call them; their records stay where they are.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        threads = rows[0][3]
        self._words = np.zeros(HEAD_WORDS + STEP_WORDS * len(rows), np.int64)
        head = address_of(self._words)
        self._words[:HEAD_WORDS] = (len(rows), threads)
        self._words[HEAD_WORDS::STEP_WORDS] = [team_record(row) - head for row in rows]
        self._words[HEAD_WORDS + STEP_WORDS + 1 :: STEP_WORDS] = 1
        self.row: Row = (rows[0][0], _of_a_team(), head, threads, 0, NO_BITS)
        """Does all of them; as long as this object lives."""


def run_sequence(words: HostArray, threads: int) -> None:
    """Do all tasks; returns when they are done."""
    if threads > 1 and libraries.has_openmp():
        start_of_teams()(_of_a_team(), address_of(words), threads, 0)
    else:
        _alone()(address_of(words))


@functools.cache
def _of_a_team() -> int:
    return entry("run_sequence", _OF_A_TEAM)


@functools.cache
def _alone() -> Callable[[int], Any]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry("run_sequence", _ALONE))
