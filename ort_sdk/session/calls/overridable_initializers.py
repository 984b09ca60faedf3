"""Overridable initializers, which are inputs, too: constants until a run feeds one.

Files of IR version 4 and later may list all their weights as inputs, and hardly any caller feeds them. So a session is made as if
they were constants, which can be folded, fused and packed; the first run that feeds one makes it anew without that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.plan import Fetch
from ort_sdk.run import ProgramRow, RunControl
from ort_sdk.session.stages.state import SessionState
from ort_sdk.session.values.ort_value import OrtValue

from .bindings import Bindings
from .fetches import FetchSelection
from .session_run import SessionRuns

__all__ = ["RunsWithDefaults"]


class RunsWithDefaults:
    """Runs of a session made with its defaults as constants, and of one made without. Thread-safe. Methods as of ``SessionRuns``.

    Args:
        runs: of the session with constants.
        names: inputs that have defaults.
        build: makes the runs of the other session.
    """

    def __init__(self, runs: SessionRuns, names: frozenset[str], build: Callable[[], SessionRuns]) -> None:
        self._runs, self._names, self._build = runs, names, build
        self._others: SessionRuns | None = None
        self._lock = threading.Lock()

    @property
    def state(self) -> SessionState:
        """Of the session with constants."""
        return self._runs.state

    @property
    def selection(self) -> FetchSelection:
        """Of outputs."""
        return self._runs.selection

    @property
    def fetches(self) -> Sequence[Fetch]:
        """The plan's."""
        return self._runs.fetches

    @property
    def is_settled(self) -> bool:
        """Of the session with constants."""
        return self._runs.is_settled

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""
        others = self._others
        return self._runs.program_report() + (() if others is None else others.program_report())

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], control: RunControl) -> list[Any]:
        """Run on host values."""
        return self._runs_for(input_feed).run(output_names, input_feed, control)

    def run_bound(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run on values wherever they are."""
        return self._runs_for(bindings.given).run_bound(bindings, control)

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input."""
        self._runs.check_required(names)

    def wait_for_compilation(self, timeout_seconds: float | None) -> bool:
        """Wait until nothing is being compiled in the background."""
        return self._runs.wait_for_compilation(timeout_seconds)

    def close(self) -> None:
        """Stop compiling in the background."""
        self._runs.close()

    def _runs_for(self, given: Any) -> SessionRuns:
        if not isinstance(given, Mapping) or self._names.isdisjoint(given):
            return self._runs
        with self._lock:
            if self._others is None:
                self._others = self._build()
            return self._others
