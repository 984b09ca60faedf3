"""One session's runs: scopes entered, feeds read, plan run, results brought to where the caller wants them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import CPU_DEVICE, OrtSdkError
from ort_sdk.api.foreign_errors import raise_foreign
from ort_sdk.run import PlanRunner, ProgramRow, RunControl
from ort_sdk.session.providers.opened import ProviderScope, binding_providers, raise_scope_error
from ort_sdk.session.providers.readiness import recorded, settle
from ort_sdk.session.stages.state import SessionState
from ort_sdk.session.values.ort_value import OrtValue

from .feeds import FeedReader
from .fetches import FetchSelection, bring_to_host, hand_out

if TYPE_CHECKING:
    from .bindings import Bindings
    from .bound_run import BoundRuns
    from .device_runs import DeviceRuns

__all__ = ["SessionRuns"]


class SessionRuns:
    """Runs a built model. Thread-safe.

    Args:
        state: the stages' products.
        use_programs: False runs every call step by step.
    """

    def __init__(self, state: SessionState, *, use_programs: bool) -> None:
        self.state = state
        self._transfers, self._providers = state.transfers, state.providers
        self._bound: BoundRuns | None = None
        self.fetches = state.plan.fetches
        self.selection = FetchSelection([fetch.name for fetch in self.fetches])
        self._reader = FeedReader(state.plan.feeds, state.transfers)
        binding = binding_providers(state.providers)
        self._runner = PlanRunner(state.plan, binding, use_programs=use_programs, memory=state.program_memory)
        self._device_runs: DeviceRuns | None = None
        used = {feed.device for feed in state.plan.feeds}.union(fetch.device for fetch in self.fetches)
        if used - {CPU_DEVICE}:
            from .device_runs import DeviceRuns

            self._device_runs = DeviceRuns(state, binding, use_programs=use_programs)
        self._queues = [provider for provider in state.providers if provider.is_asynchronous]
        self._reads_late = any(provider.reads_late for provider in self._queues)
        scopes = {provider.name: scope for provider in state.providers if (scope := provider.run_scope()) is not None}
        self._scope, self._scoped = _scope_of(scopes), tuple(scopes)

    @property
    def is_settled(self) -> bool:
        """Whether there are programs, and none will be made again with more of their steps compiled."""
        if self._device_runs is None:
            return self._runner.is_settled
        settled = [*self._device_runs.settled, *([self._runner.is_settled] if self._runner.report() else [])]
        return bool(settled) and all(settled)

    def program_report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far."""
        others = () if self._device_runs is None else self._device_runs.report()
        return (*self._runner.report(), *others)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], control: RunControl) -> list[Any]:
        """Run on host values; results are host values of the caller's own."""
        indices = self.selection.indices(output_names) if output_names else None
        try:
            with self._scope(control):
                if self._bound is not None:
                    self._bound.finish_reading()
                if self._device_runs is None:
                    results = self._runner.run(self._reader.read(input_feed), control)
                elif self._device_runs.takes(input_feed):
                    results = self._device_runs.run(input_feed, indices, control)
                else:
                    results = self._runner.run(self._reader.read(input_feed), control)
                    bring_to_host(results, self.fetches, indices, self._transfers)
                if self._queues and (self._reads_late or any(isinstance(value, OrtValue) for value in input_feed.values())):
                    self._wait()
        except OrtSdkError:
            settle(self._queues)
            raise
        except Exception as error:  # noqa: BLE001 - a provider's scope may raise anything
            settle(self._queues)
            raise_scope_error(error, self._scoped)
        if indices is not None:
            # No other list may hold them: what is held here only is handed out without a copy.
            results = [results[index] for index in indices]
        return hand_out(results)

    def run_bound(self, bindings: Bindings, control: RunControl) -> list[OrtValue]:
        """Run on values wherever they are; results go where they are wanted."""
        if self._bound is None:
            from .bound_run import BoundRuns

            parts = (self._reader, self._runner, self.selection, self._scope, self._scoped)
            self._bound = BoundRuns(*parts, self._providers, self._transfers)
        return self._bound.run(bindings, control)

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input."""
        self._reader.check_required(names)

    def wait_for_compilation(self, _timeout_seconds: float | None) -> bool:
        """True: kernels of this session are compiled when they are needed, and the run waits."""
        return True

    def close(self) -> None:
        """Nothing to do: nothing goes on in the background."""

    def _wait(self) -> None:
        """Wait for what reads the caller's values and arrays, which know nothing of this run; other runs' errors are theirs."""
        for provider in self._queues:
            recorded(provider).wait()


def _scope_of(scopes: Mapping[str, ProviderScope]) -> ProviderScope:
    """Makes the context of one run: the scopes of the providers that have one, by the providers' names."""
    if not scopes:
        nothing: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        return lambda _control: nothing
    if len(scopes) == 1:
        return next(iter(scopes.values()))

    def enter_all(control: RunControl) -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        try:
            for name, scope in scopes.items():
                _enter(stack, name, scope, control)
        except BaseException:
            stack.close()
            raise
        return stack

    return enter_all


def _enter(stack: contextlib.ExitStack, name: str, scope: ProviderScope, control: RunControl) -> None:
    try:
        stack.enter_context(scope(control))
    except Exception as error:  # noqa: BLE001 - a provider may raise anything
        raise_foreign(error, f"raised in run_scope of {name}")
