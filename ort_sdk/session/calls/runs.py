"""What a session needs of its runs, whichever sessions they were built of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ort_sdk.plan import Fetch
from ort_sdk.run import ProgramRow, RunControl
from ort_sdk.session.stages.state import SessionState
from ort_sdk.session.values.ort_value import OrtValue

from .bindings import Bindings
from .fetches import FetchSelection

__all__ = ["Runs"]


class Runs(Protocol):
    """Runs of a model, from any number of threads at once."""

    @property
    def state(self) -> SessionState:
        """The stages' products of the session that runs now."""

    @property
    def selection(self) -> FetchSelection:
        """Of outputs."""

    @property
    def fetches(self) -> Sequence[Fetch]:
        """The plan's."""

    @property
    def is_settled(self) -> bool:
        """Whether there are programs, and none will be made again with more of their steps compiled."""

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], control: RunControl) -> list[Any]:
        """Run on host values; results are host values of the caller's own."""

    def run_bound(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run on values wherever they are; results go where they are wanted."""

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input."""

    def wait_for_compilation(self, timeout_seconds: float | None) -> bool:
        """Wait until nothing is being compiled in the background; False if that takes longer."""

    def close(self) -> None:
        """Stop compiling in the background; runs under way finish."""
