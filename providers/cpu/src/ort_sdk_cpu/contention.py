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
import time
from pathlib import Path

__all__ = ["works_alone"]

LARGEST_TEAM = 4
"""Threads up to which it is asked: a larger team rarely finds fewer than two processors free."""
_LOOK_AGAIN_NS = 2_000_000
"""Time between two looks, each some microseconds long."""
_LOAD = Path("/proc/loadavg")
_TASKS = Path("/proc/self/task")


class _State(threading.local):
    """What a thread that starts teams knows."""

    works_alone = False
    look_at_ns = 0
    team: tuple[int, ...] = ()
    """System's numbers of the others in its team, which OpenMP keeps for it."""


_state = _State()


def works_alone(threads: int) -> bool:
    """Whether the run that begins on this thread should keep to it.

    Args:
        threads: of a team, at least 2.
    """
    if threads > LARGEST_TEAM:
        return False
    state = _state
    now = time.perf_counter_ns()
    if now >= state.look_at_ns:
        state.look_at_ns = now + _LOOK_AGAIN_NS
        state.works_alone = _free_processors(threads, state) < 2
    return state.works_alone


def _free_processors(threads: int, state: _State) -> int:
    """Processors that this thread and its team may use and no other thread does; as many as there are if nobody knows."""
    allowed, online = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    running = _running_threads()
    free = min(allowed, online - running + 1)
    if free >= 2 or allowed < 2:
        return max(free, 2)
    if len(state.team) != threads - 1:
        state.team = _team(threads)
    return min(allowed, free + sum(map(_is_running, state.team)))


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


def _is_running(thread: int) -> bool:
    """Whether a thread of this process runs, or waits for a processor; OpenMP's do while they look for work."""
    with contextlib.suppress(OSError):
        return (_TASKS / str(thread) / "stat").read_bytes().rpartition(b") ")[2][:1] == b"R"
    return False


def _team(threads: int) -> tuple[int, ...]:
    """The system's numbers of the other threads in this thread's team."""
    from . import libraries

    seen: list[int] = []
    tell = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(threading.get_native_id()))
    ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel(tell, None, threads, 0)
    own = threading.get_native_id()
    return tuple(thread for thread in seen if thread != own)
