"""Whether other programs use the processors that a team of threads would work on: then a run is faster on one thread.

The threads of a team end each piece of work together. One that waits for a processor holds up the others for as long as the
system lets another program go on, which is milliseconds; a piece of work takes microseconds. Two threads on one and a half
processors so take several times as long as one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

__all__ = ["expect_teams", "works_alone"]

LARGEST_TEAM = 4
"""Threads up to which it is asked: a larger team rarely finds fewer than two processors free."""
_LOOK_AGAIN_NS, _LOOK_CLOSER_NS = 20_000_000, 2_000_000
"""Time between two looks, which take half a hundred microseconds each: when nobody was there, and when somebody was."""
_REST_NS = 10_000_000
"""Time between the beginnings of two runs from which threads have gone to sleep, and the system wakes them where it likes."""
_RUNS_AFTER_REST = 4
"""Runs then before each of which a team is looked after, whatever the time."""
_PROCESSOR_FIELD = 36
"""Of what the system tells of a thread, behind its name."""
_LOAD, _TASKS = Path("/proc/loadavg"), Path("/proc/self/task")


class _Thread:
    """What the system tells of a thread of this process.

    Args:
        number: the system's.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = os.open(_TASKS / str(number) / "stat", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)

    def is_running(self) -> bool:
        """Whether it runs, or waits for a processor."""
        return self._told()[0] == b"R"

    @property
    def processor(self) -> int:
        """Where it runs, or ran last."""
        return int(self._told()[_PROCESSOR_FIELD])

    def _told(self) -> list[bytes]:
        """What the system tells behind its name."""
        return os.pread(self._file, 512, 0).rpartition(b") ")[2].split()


class _State:
    """What a thread that starts teams knows."""

    __slots__ = ("began_ns", "has_met", "look_at_ns", "runs_after_rest", "team", "works_alone")

    def __init__(self) -> None:
        self.works_alone = False
        self.has_met = False
        """Whether the last look found others."""
        self.look_at_ns = 0
        self.began_ns = 0
        """When the last run began."""
        self.runs_after_rest = 0
        """Of those still to come."""
        self.team: tuple[_Thread, ...] = ()
        """The others in its team, which OpenMP keeps for it."""


class _Local(threading.local):
    """Asked once a run: each look at what a thread has of its own takes as long as a call."""

    def __init__(self) -> None:
        self.state = _State()


_local = _Local()


class _Teams:
    """What is known of teams in this process."""

    are_expected = False


_teams = _Teams()


def expect_teams() -> None:
    """Look after teams from now on: something is about to start one."""
    _teams.are_expected = True


def works_alone(threads: int) -> bool:
    """Whether the run that begins on this thread should keep to it: two looks in a row found others.

    Args:
        threads: of a team, at least 2.
    """
    if threads > LARGEST_TEAM:
        return False
    state, now = _local.state, perf_counter_ns()
    began, state.began_ns = state.began_ns, now
    if now - began > _REST_NS:
        state.runs_after_rest = _RUNS_AFTER_REST
    if now >= state.look_at_ns:
        has_met, state.has_met = state.has_met, _free_processors(threads, state) < 2
        # Many wait for a processor for some microseconds.
        state.works_alone = has_met and state.has_met
        state.look_at_ns = now + (_LOOK_CLOSER_NS if state.has_met else _LOOK_AGAIN_NS)
    elif state.runs_after_rest:
        state.runs_after_rest -= 1
    else:
        return state.works_alone
    if not state.works_alone and _teams.are_expected:
        _keep_apart(threads, state)
    return state.works_alone


def _free_processors(threads: int, state: _State) -> int:
    """Processors that this thread and its team may use and no other thread does; as many as there are if nobody knows."""
    allowed, online = len(os.sched_getaffinity(0)), _online_processors()
    free = min(allowed, online - _running_threads() + 1)
    if free >= 2 or allowed < 2:
        return max(free, 2)
    # Asked in this order: one that goes to sleep in between is not taken for another program's.
    own = _running_in_team(threads, state)
    return min(allowed, online - _running_threads() + 1 + own)


def _running_in_team(threads: int, state: _State) -> int:
    """The others in this thread's team that run, or wait for a processor; they do while they look for work."""
    try:
        if len(state.team) != threads - 1:
            state.team = _team(threads)
        return sum(thread.is_running() for thread in state.team)
    except OSError:
        # OpenMP has ended one of them.
        state.team = ()
        return 0


def _keep_apart(threads: int, state: _State) -> None:
    """Take the others of the team off this thread's processor.

    The system wakes a thread where the one is that wakes it, and moves none of them while both go to sleep again and again:
    they would take turns on one processor until there is more to do, and each piece of work would take longer than on one thread.
    """
    try:
        own, allowed = _current_processor()(), os.sched_getaffinity(0)
        if len(state.team) != threads - 1:
            state.team = _team(threads)
        for thread in state.team:
            if thread.processor == own and len(allowed) > 1:
                os.sched_setaffinity(thread.number, allowed - {own})
    except OSError:
        # OpenMP has ended one of them.
        state.team = ()


@functools.cache
def _current_processor() -> Callable[[], int]:
    return ctypes.CDLL(None).sched_getcpu


@functools.cache
def _online_processors() -> int:
    """Of the machine: asked once, as that reads a file each time."""
    return os.cpu_count() or 1


@functools.cache
def _load_file() -> int | None:
    with contextlib.suppress(OSError):
        return os.open(_LOAD, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _running_threads() -> int:
    """Threads of the machine that run or wait for a processor, with this one; 1 where the system does not tell."""
    file = _load_file()
    if file is None:
        return 1
    running = os.pread(file, 128, 0).split()[3].partition(b"/")[0]
    return max(int(running), 1)


def _team(threads: int) -> tuple[_Thread, ...]:
    """The other threads in this thread's team."""
    from . import libraries

    seen: list[int] = []
    tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(threading.get_native_id()))
    ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel(tell, None, threads, 0)
    own = threading.get_native_id()
    return tuple(_Thread(thread) for thread in seen if thread != own)
