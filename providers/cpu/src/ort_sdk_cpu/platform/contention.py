"""Detects that other programs use the processors of a thread team: then a run is faster on one thread.

The threads of a team end each parallel region at a barrier. One that is preempted holds up the others for the scheduler's time
slice, which is milliseconds; a parallel region takes microseconds. Two threads on one and a half processors therefore take
several times as long as one thread.
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

from . import libraries

__all__ = ["enable_affinity", "should_run_serially"]

LARGEST_TEAM = 4
"""Largest team that is checked: a larger one rarely finds fewer than two processors idle."""
_IDLE_CHECK_NS, _BUSY_CHECK_NS = 20_000_000, 2_000_000
"""Time between two checks, which take about 50 us each: while the machine is idle, and while it is busy."""
_PAUSE_NS = 10_000_000
"""Time between the beginnings of two runs after which threads have gone to sleep, and are woken on any processor."""
_RUNS_AFTER_PAUSE = 4
"""Runs after a pause before each of which the team's processors are checked, whatever the time."""
_PROCESSOR_FIELD = 36
"""Index of the processor among the fields of ``/proc/self/task/<id>/stat`` behind the thread's name, see proc(5)."""
_LOAD, _TASKS = Path("/proc/loadavg"), Path("/proc/self/task")


class _Thread:
    """State of a thread of this process, read from ``/proc``.

    Args:
        number: the thread's native id.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = os.open(_TASKS / str(number) / "stat", os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)

    def is_running(self) -> bool:
        """Whether it runs, or is ready to run."""
        return self._fields()[0] == b"R"

    @property
    def processor(self) -> int:
        """Number of the processor it runs on, or ran on last."""
        return int(self._fields()[_PROCESSOR_FIELD])

    def _fields(self) -> list[bytes]:
        """Fields of its ``stat`` file behind the thread's name."""
        return os.pread(self._file, 512, 0).rpartition(b") ")[2].split()


class _State:
    """State of a thread that starts parallel regions."""

    __slots__ = ("is_serial", "next_check_ns", "runs_after_pause", "started_ns", "team", "was_busy")

    def __init__(self) -> None:
        self.is_serial = False
        """Whether runs use one thread until the next check."""
        self.was_busy = False
        """Whether the last check found other programs running."""
        self.next_check_ns = 0
        self.started_ns = 0
        """When the last run began."""
        self.runs_after_pause = 0
        """Runs left of ``_RUNS_AFTER_PAUSE``."""
        self.team: tuple[_Thread, ...] = ()
        """The other threads of its team, which OpenMP keeps for it."""


class _Local(threading.local):
    """One object per thread: an access to a thread-local attribute takes as long as a call, so it is read once a run."""

    def __init__(self) -> None:
        self.state = _State()


_local = _Local()


class _Affinity:
    """Whether threads of teams are kept off the processor of the thread that starts them; for the whole process."""

    is_enabled = False


_affinity = _Affinity()


def enable_affinity() -> None:
    """Set the affinity of the threads of teams from now on: a library that starts teams is loaded."""
    _affinity.is_enabled = True


def should_run_serially(threads: int) -> bool:
    """Whether the run that begins on this thread should use one thread: two checks in a row found the machine busy.

    Args:
        threads: size of the team, at least 2.
    """
    if threads > LARGEST_TEAM:
        return False
    state, now = _local.state, perf_counter_ns()
    started, state.started_ns = state.started_ns, now
    if now - started > _PAUSE_NS:
        state.runs_after_pause = _RUNS_AFTER_PAUSE
    if now >= state.next_check_ns:
        _check(threads, state, now)
    elif state.runs_after_pause:
        state.runs_after_pause -= 1
    else:
        return state.is_serial
    if not state.is_serial and _affinity.is_enabled:
        _separate_team(threads, state)
    return state.is_serial


def _check(threads: int, state: _State, now: int) -> None:
    """Count the free processors, and decide for all runs up to the next check."""
    was_busy, state.was_busy = state.was_busy, _free_processors(threads, state) < 2
    # One check is not enough: many threads are ready to run for some microseconds only.
    state.is_serial = was_busy and state.was_busy
    state.next_check_ns = now + (_BUSY_CHECK_NS if state.was_busy else _IDLE_CHECK_NS)


def _free_processors(threads: int, state: _State) -> int:
    """Processors that no thread other than this one and its team uses; all of them if the system does not say."""
    allowed, online = len(os.sched_getaffinity(0)), _online_processors()
    free = min(allowed, online - _running_threads() + 1)
    if free >= 2 or allowed < 2:
        return max(free, 2)
    # The team is counted first: one of its threads that goes to sleep in between is not taken for another program's.
    own = _running_in_team(threads, state)
    return min(allowed, online - _running_threads() + 1 + own)


def _running_in_team(threads: int, state: _State) -> int:
    """Number of the team's other threads that run or are ready to run, as they are while they spin."""
    try:
        if len(state.team) != threads - 1:
            state.team = _team(threads)
        return sum(thread.is_running() for thread in state.team)
    except OSError:
        # OpenMP has ended one of them.
        state.team = ()
        return 0


def _separate_team(threads: int, state: _State) -> None:
    """Move the other threads of the team off this thread's processor.

    Linux wakes a thread on the processor of the thread that wakes it, and does not migrate threads that sleep again and again:
    the team would share one processor, and each parallel region would take longer than on one thread.
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
    """Number of processors of the machine; cached, since ``os.cpu_count`` reads a file each time."""
    return os.cpu_count() or 1


@functools.cache
def _load_file() -> int | None:
    with contextlib.suppress(OSError):
        return os.open(_LOAD, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _running_threads() -> int:
    """Threads of the machine that run or are ready to run, with this one; 1 where the system does not say."""
    file = _load_file()
    if file is None:
        return 1
    running = os.pread(file, 128, 0).split()[3].partition(b"/")[0]
    return max(int(running), 1)


def _team(threads: int) -> tuple[_Thread, ...]:
    """The other threads of this thread's team, found by a parallel region in which each appends its id."""
    seen: list[int] = []
    append_id = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(threading.get_native_id()))
    ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel(append_id, None, threads, 0)
    own = threading.get_native_id()
    return tuple(_Thread(thread) for thread in seen if thread != own)
