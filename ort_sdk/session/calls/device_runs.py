"""Runs on host values of a plan that takes or leaves values on devices: their copies are steps of the plan that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array
from ort_sdk.plan.host_values import with_host_values
from ort_sdk.run import BindingProvider, PlanRunner, ProgramRow, RunControl
from ort_sdk.session.stages.state import SessionState
from ort_sdk.session.values.ort_value import OrtValue

from .feeds import FeedReader
from .fetches import bring_to_host

__all__ = ["DeviceRuns"]

MAX_SELECTIONS = 8
"""Choices of outputs that have programs of their own; for further ones, outputs are copied after the run."""


class DeviceRuns:
    """Runs a plan on values of the host. Thread-safe.

    Args:
        state: the stages' products.
        providers: provider name → what binding needs.
        use_programs: False runs every call step by step.
    """

    def __init__(self, state: SessionState, providers: Mapping[str, BindingProvider], *, use_programs: bool) -> None:
        self._state, self._providers, self._use_programs = state, providers, use_programs
        self._runners: dict[frozenset[int], tuple[FeedReader, PlanRunner]] = {}

    def takes(self, input_feed: Any) -> bool:
        """Whether what a caller gives is on the host, as far as it is any good."""
        values = input_feed.values() if isinstance(input_feed, Mapping) else ()
        return not any(isinstance(value, OrtValue) and value.device != CPU_DEVICE for value in values)

    def run(self, input_feed: Mapping[str, Any], wanted: Sequence[int] | None, control: RunControl) -> list[Array]:
        """Run once.

        Args:
            input_feed: as a caller gives it.
            wanted: positions of the fetches that are wanted; None for all.
            control: what may interrupt or watch the run.

        Returns:
            One value per fetch, on the host if it is wanted.
        """
        chosen = frozenset(range(len(self._state.plan.fetches)) if wanted is None else wanted)
        reader, runner = self._runners.get(chosen) or self._new_runner(chosen)
        results = runner.run(reader.read(input_feed), control)
        bring_to_host(results, runner.plan.fetches, chosen, self._state.transfers)
        return results

    def _new_runner(self, chosen: frozenset[int]) -> tuple[FeedReader, PlanRunner]:
        if len(self._runners) > MAX_SELECTIONS:
            chosen = frozenset()
            if chosen in self._runners:
                return self._runners[chosen]
        state = self._state
        plan = with_host_values(state.plan, state.transfers, chosen)
        runner = PlanRunner(plan, self._providers, use_programs=self._use_programs, memory=state.program_memory)
        return self._runners.setdefault(chosen, (FeedReader(plan.feeds, state.transfers), runner))

    def report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""
        return tuple(row for _, runner in list(self._runners.values()) for row in runner.report())

    @property
    def settled(self) -> list[bool]:
        """Of each choice of outputs that was met, whether its programs are final."""
        return [runner.is_settled for _, runner in list(self._runners.values())]
