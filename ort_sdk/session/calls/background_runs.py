"""Runs while code is compiled: with kernels that need none, until a thread has made and tried a session that has it all.

A session made with what is compiled already (``RAISE``) meets code that is not, when it is made or in a run. Then another one
computes, of kernels that need no compiled code (``AVOID``), and a thread waits for the code (``WAIT``): it makes the session if
it is to be made, and repeats the run on a copy of its feeds, so that whatever such a run needs is compiled. After that the
session takes over, and the other one goes.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ort_sdk.api import CompilationContext, CompilationPending, CompilationPolicy, OrtSdkError
from ort_sdk.plan import Fetch
from ort_sdk.run import ProgramRow, RunControl
from ort_sdk.session.stages.state import SessionState
from ort_sdk.session.values.ort_value import OrtValue

from .bindings import Bindings
from .fetches import FetchSelection

if TYPE_CHECKING:
    from .runs import Runs

__all__ = ["BackgroundRuns"]

_T = TypeVar("_T")

REHEARSALS = 3
"""Runs of the thread on copied feeds: the first goes step by step, the second makes a program, the third runs it."""


class BackgroundRuns:
    """Runs of a session for which a thread compiles what a run found missing. Thread-safe. Methods as of ``Runs``.

    Args:
        ready: runs of the session made with what is compiled; None if something was missing when it was made.
        interim: runs of the session without compiled code; may be None if ``ready`` is not.
        build: builds either of them, under the policy of the thread that calls it.
        log: logs a text at one of Python's levels.
        may_compile: whether a thread compiles what is missing.
    """

    def __init__(
        self,
        ready: Runs | None,
        interim: Runs | None,
        build: Callable[[], Runs],
        log: Callable[[int, str], None],
        *,
        may_compile: bool,
    ) -> None:
        self._ready, self._interim, self._build, self._log = ready, interim, build, log
        self._may_compile = may_compile
        self._lock = threading.RLock()
        self._worker: _Worker | None = None
        self._missing: tuple[object, ...] = ()
        """What the last run that met missing code met."""

    @property
    def state(self) -> SessionState:
        """Of the session that runs now."""
        return self._current.state

    @property
    def selection(self) -> FetchSelection:
        """Of outputs."""
        return self._current.selection

    @property
    def fetches(self) -> Sequence[Fetch]:
        """The plan's."""
        return self._current.fetches

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being compiled, and nothing of the session's programs will be."""
        return not self._is_compiling and self._current.is_settled

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""
        return self._current.program_report()

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input."""
        self._current.check_required(names)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], control: RunControl) -> list[Any]:
        """Run on host values."""
        return self._run(lambda runs: runs.run(output_names, input_feed, control), input_feed)

    def run_bound(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run on values wherever they are."""
        return self._run(lambda runs: runs.run_bound(bindings, control), bindings.given)

    def close(self) -> None:
        """Stop compiling; the runs stay what they are."""
        self._may_compile = False
        if self._worker is not None:
            self._worker.cancel()

    def wait_for_compilation(self, timeout_seconds: float | None) -> bool:
        """Wait until nothing is being compiled; False if that takes longer."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout_seconds)
        return not self._is_compiling

    @property
    def _is_compiling(self) -> bool:
        # In a forked child the thread is not there.
        return self._worker is not None and self._worker.is_alive()

    @property
    def _current(self) -> Runs:
        """The runs that compute now."""
        ready = self._ready
        return ready if ready is not None and not self._is_compiling else self._without_compiled_code()

    def _run(self, run: Callable[[Runs], _T], feeds: Mapping[str, Any]) -> _T:
        ready, is_compiling = self._ready, self._is_compiling
        if ready is not None and not is_compiling:
            try:
                with CompilationContext(CompilationPolicy.RAISE):
                    return run(ready)
            except CompilationPending as pending:
                missing, self._missing = self._missing, pending.args
            if missing == self._missing:
                # The thread repeated such a run and did not need it: only this one does, and waits.
                with CompilationContext(CompilationPolicy.WAIT):
                    return run(ready)
        with CompilationContext(CompilationPolicy.AVOID):
            results = run(self._without_compiled_code())
        if not is_compiling:
            # Only now: the first answer is not to share processor and interpreter with the thread.
            self._start(feeds)
        return results

    def _without_compiled_code(self) -> Runs:
        with self._lock:
            if self._interim is None:
                with CompilationContext(CompilationPolicy.AVOID):
                    self._interim = self._build()
            return self._interim

    def _start(self, feeds: Mapping[str, Any]) -> None:
        """Start the thread, unless another run did."""
        with self._lock:
            if not self._may_compile or self._is_compiling:
                return
            self._log(logging.INFO, "compiled kernels are missing: they are compiled in the background; others compute meanwhile")
            self._worker = _Worker(self, self._ready, self._build, feeds)
            self._worker.start()

    def _take_over(self, runs: Runs, seconds: float) -> None:
        """Called by the thread: let the session whose code is compiled compute from now on."""
        with self._lock:
            self._ready, self._interim, self._worker = runs, None, None
        self._log(logging.INFO, f"kernels were compiled in the background in {seconds:.1f} s and compute from now on")

    def _give_up(self, error: Exception) -> None:
        """Called by the thread: stay with kernels that need no compiled code."""
        self._may_compile = False
        self._log(logging.WARNING, f"compiling in the background failed, and is not tried again: {type(error).__name__}: {error}")


class _Worker(threading.Thread):
    """Compiles what a session needs by making it, if need be, and by running it.

    Args:
        owner: which does not live on for the thread.
        runs: of the session; None if it is to be made.
        build: makes it.
        feeds: of the run that met missing code.
    """

    def __init__(self, owner: BackgroundRuns, runs: Runs | None, build: Callable[[], Runs], feeds: Mapping[str, Any]) -> None:
        super().__init__(name="ort_sdk compilation", daemon=True)
        _workers.add(self)
        self._cancelled = threading.Event()
        self._owner = weakref.ref(owner, lambda _: self.cancel())
        self._runs, self._build = runs, build
        self._feeds = _copied(feeds)

    def cancel(self) -> None:
        """End the thread when it next waits for code."""
        self._cancelled.set()

    def run(self) -> None:
        """Make the session, repeat the run, and let the owner know."""
        start = time.perf_counter()
        try:
            with CompilationContext(CompilationPolicy.WAIT, self._cancelled.is_set, in_background=True):
                runs = self._runs or self._build()
                self._repeat_run(runs)
        except CompilationPending:
            return  # cancelled
        except Exception as error:  # noqa: BLE001 - whatever a provider raises must not end in a thread nobody looks at
            owner = self._owner()
            if owner is not None:
                owner._give_up(error)
            return
        owner = self._owner()
        if owner is not None and not self._cancelled.is_set():
            owner._take_over(runs, time.perf_counter() - start)

    def _repeat_run(self, runs: Runs) -> None:
        for _ in range(REHEARSALS):
            try:
                runs.run(None, self._feeds, RunControl())  # as the caller runs: runs that may be stopped go another way
            except OrtSdkError:
                return  # the caller's own run raises the same


def _copied(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds that the caller does not change: arrays are copied; an OrtValue's contents may change, but nothing else of it."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in feeds.items()}


_workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
PATIENCE_SECONDS = 10.0
"""Longest time that the end of a process waits for a thread: libraries must not be torn down below its native code."""


def _end_all() -> None:
    for worker in list(_workers):
        worker.cancel()
    for worker in list(_workers):
        worker.join(PATIENCE_SECONDS)


atexit.register(_end_all)
