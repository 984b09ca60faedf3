"""One session's runs: scopes entered, feeds read, plan run, results brought to where the caller wants them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import CPU_DEVICE, Array, HostArray, overwriting
from ort_sdk.plan import ExecutionPlan, Fetch
from ort_sdk.run import PlanRunner, ProgramRow, RunControl

from .build import SessionState
from .device_access import DeviceAccess, device_access
from .feeds import FeedReader
from .fetches import FetchSelection, hand_out, is_held_here_only
from .ort_value import OrtValue
from .session_providers import ProviderScope, binding_providers

if TYPE_CHECKING:
    from .io_binding import Target

__all__ = ["SessionRuns"]


class SessionRuns:
    """Runs a built model. Thread-safe.

    Args:
        state: the stages' products.
        use_programs: False runs every call step by step.
    """

    def __init__(self, state: SessionState, *, use_programs: bool) -> None:
        self._transfers = state.transfers
        self.fetches = state.plan.fetches
        self.selection = FetchSelection([fetch.name for fetch in self.fetches])
        self._reader = FeedReader(state.plan.feeds, state.transfers)
        self._runner = PlanRunner(state.plan, binding_providers(state.providers), use_programs=use_programs)
        self._is_on_host = all(fetch.device == CPU_DEVICE for fetch in self.fetches)
        self._access = {
            provider.device: DeviceAccess(provider.device, provider) for provider in state.providers if not provider.device.is_cpu
        }
        self._in_place = _in_place(state.plan)
        self._scope = _scope_of([scope for provider in state.providers if (scope := provider.run_scope()) is not None])

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""
        return self._runner.report()

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], control: RunControl) -> list[Any]:
        """Run on host values; results are host values of the caller's own."""
        indices = self.selection.indices(output_names) if output_names else None
        with self._scope(control):
            results = self._runner.run(self._reader.read(input_feed), control)
            if not self._is_on_host:
                results = self._on_host(results, indices)
        if indices is not None:
            # No other list may hold them: what is held here only is handed out without a copy.
            results = [results[index] for index in indices]
        return hand_out(results)

    def run_bound(
        self, given: Mapping[str, OrtValue], names: Sequence[str], targets: Sequence[Target], control: RunControl
    ) -> list[OrtValue]:
        """Run on values wherever they are; results go where they are wanted.

        Args:
            given: input name → value.
            names: outputs wanted.
            targets: for each, a device, or a value to fill.
            control: what may interrupt or watch the run.
        """
        from .io_binding import check_preallocated

        indices = self.selection.indices(names) or []
        for index, target in zip(indices, targets, strict=True):
            if isinstance(target, OrtValue):
                check_preallocated(target, self.fetches[index])
        with self._scope(control):
            feeds = self._reader.read_values(given)
            with overwriting(self._overwritten(feeds, dict(zip(indices, targets, strict=True)))):
                results = self._runner.run(feeds, control)
            placed = [
                self._place(results, index, target, is_last=index not in indices[position + 1 :])
                for position, (index, target) in enumerate(zip(indices, targets, strict=True))
            ]
        return [
            self._delivered(value, self.fetches[index], target)
            for value, index, target in zip(placed, indices, targets, strict=True)
        ]

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input."""
        self._reader.check_required(names)

    def _on_host(self, results: list[Array], indices: list[int] | None) -> list[Array]:
        """Copy the wanted results to the host."""
        wanted = range(len(results)) if indices is None else indices
        for index in set(wanted):
            device = self.fetches[index].device
            if device != CPU_DEVICE:
                results[index] = self._transfers.copy(results[index], device, CPU_DEVICE)
        return results

    def _overwritten(self, feeds: Sequence[Array], targets: Mapping[int, Target]) -> list[HostArray]:
        """Feeds whose memory the caller wants an output in that may be there."""
        found = []
        for feed, fetch in self._in_place:
            target = targets.get(fetch)
            if isinstance(target, OrtValue) and target.holds(feeds[feed]):
                found.append(feeds[feed])
        return found

    def _place(self, results: list[Array], index: int, target: Target, *, is_last: bool) -> Array:
        """A result where it is wanted, in memory of its own; one that is copied into given memory of the host as it is."""
        fetch, device = self.fetches[index], target.device if isinstance(target, OrtValue) else target
        if fetch.device == device == CPU_DEVICE:
            if isinstance(target, OrtValue) and fetch.is_owned:
                return results[index]
            wanted = [results[index]]
            if is_last:
                # No other list may hold it: what is held here only is handed out without a copy.
                results[index] = None
            return hand_out(wanted)[0]
        # A program may keep a result that is the same in every run.
        if fetch.device == device and fetch.is_owned and is_held_here_only(results, index):
            return results[index]
        return self._transfers.copy(results[index], fetch.device, device)

    def _delivered(self, value: Array, fetch: Fetch, target: Target) -> OrtValue:
        device = target.device if isinstance(target, OrtValue) else target
        access = self._access.get(device) or device_access(device)
        made = OrtValue.wrap(value, access, fetch.type or "")
        if not isinstance(target, OrtValue):
            return made
        if target.holds(value):
            return target
        from .io_binding import fill_preallocated

        fill_preallocated(target, made, fetch.name)
        return target


def _in_place(plan: ExecutionPlan) -> tuple[tuple[int, int], ...]:
    """Feeds and fetches that may be in the same memory, by position: the kernel that makes the fetch alone reads the feed."""
    feeds = {feed.index: position for position, feed in enumerate(plan.feeds)}
    fetches = {fetch.index: position for position, fetch in enumerate(plan.fetches)}
    found = []
    for step in plan.steps:
        for source, target in getattr(step.kernel, "in_place", ()):
            if source < len(step.inputs) and target < len(step.outputs):
                feed, fetch = feeds.get(step.inputs[source]), fetches.get(step.outputs[target])
                readers = sum(each.inputs.count(step.inputs[source]) for each in plan.steps)
                if feed is not None and fetch is not None and readers == 1 and step.inputs[source] not in fetches:
                    found.append((feed, fetch))
    return tuple(found)


def _scope_of(scopes: Sequence[ProviderScope]) -> ProviderScope:
    """Makes the context of one run: the scopes of the providers that have one."""
    if not scopes:
        nothing: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        return lambda _control: nothing
    if len(scopes) == 1:
        return scopes[0]

    def enter_all(control: RunControl) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        try:
            for scope in scopes:
                stack.enter_context(scope(control))
        except BaseException:
            stack.close()
            raise
        return stack

    return enter_all
