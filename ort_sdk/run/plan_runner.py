"""Running a plan repeatedly: step by step, or by a program once an input signature is seen a second time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Array, OutOfMemory, Stacking, is_overwriting
from ort_sdk.plan import ExecutionPlan

from .executor import BodyRunner, RunControl, execute
from .program_memory import ProgramMemory
from .types import BindingProvider, ProgramRow, Targets, signature_of

if TYPE_CHECKING:
    from .program.cache import ProgramCache

__all__ = ["PlanRunner", "body_runner"]


class PlanRunner:
    """Runs one plan. Thread-safe: runs at the same time use program caches of their own.

    Args:
        plan: plan of a main graph.
        providers: provider name → what binding needs.
        use_programs: False runs every call step by step.
        is_body: whether it is a body of control flow.
        memory: bounds what its programs hold, together with those of other plans that share it; one of its own by default.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        providers: Mapping[str, BindingProvider],
        *,
        use_programs: bool,
        is_body: bool = False,
        memory: ProgramMemory | None = None,
    ) -> None:
        self.plan = plan
        self._is_body = is_body
        self._providers = providers
        self._use_programs = use_programs
        self._idle: list[ProgramCache] = []
        """Program caches that no run is using, the one used last at the end."""
        self.memory = ProgramMemory() if memory is None else memory
        self.memory.join(self)

    def run(
        self,
        feeds: Sequence[Array],
        control: RunControl,
        signature: tuple[Any, ...] | None = None,
        targets: Targets | None = None,
    ) -> list[Array]:
        """Run once. Arguments and result as for ``execute``.

        Args:
            feeds: in the plan's order.
            control: what may interrupt or watch the run.
            signature: that of the feeds, if it is known.
            targets: where the caller wants results. One that a program copies for the caller in any case is there then, if shape
                and type fit, and the array itself is returned.
        """
        if not self._use_programs or control.observer is not None:
            return execute(self.plan, feeds, control)
        if signature is None:
            signature = signature_of(feeds)
        if signature is None:
            return execute(self.plan, feeds, control)
        # list.pop and append are atomic, which is all the locking that handing out caches needs.
        try:
            programs = self._idle.pop()
        except IndexError:
            programs = self._new_cache()
            if not self.memory.admit(programs):
                return execute(self.plan, feeds, control)
        try:
            return programs.run(signature, feeds, control, targets)
        except OutOfMemory:
            if is_overwriting() or not self._drop_device_memory(programs):
                raise
        finally:
            if programs.has_changed:
                programs.has_changed = False
                programs.drop_outdated()
                self.memory.count(programs)
            self._idle.append(programs)
            if self.memory.is_exceeded:
                self._drop_idle()
        # What the failed run had is gone with its error.
        return execute(self.plan, feeds, control)

    def _drop_device_memory(self, programs: ProgramCache) -> bool:
        """Drop what the session's programs that are not running hold on devices; whether there was any, so that a run may fit."""
        if not programs.has_devices:
            return False
        dropped = [each.drop_device_memory() for each in (programs, *self.memory.take_idle())]
        programs.has_changed = True
        return any(dropped)

    def take_idle(self) -> list[ProgramCache]:
        """Caches that no run is using, which leave the list for good."""
        taken: list[ProgramCache] = []
        while self._idle:
            with contextlib.suppress(IndexError):
                taken.append(self._idle.pop())
        return taken

    def _drop_idle(self) -> None:
        """Drop the caches that were used least recently, until the rest is within the limit, or in use."""
        while self.memory.is_exceeded:
            try:
                self.memory.drop(self._idle.pop(0))
            except IndexError:
                return

    def _new_cache(self) -> ProgramCache:
        """What makes programs is imported in the first run: a session that is made and not run needs none of it."""
        from .program.cache import ProgramCache

        return ProgramCache(self.plan, self._providers, may_be_dynamic=True, is_body=self._is_body)

    def report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far, of all caches that no run is using, oldest first."""
        return tuple(row for programs in list(self._idle) for row in programs.report())

    @property
    def is_settled(self) -> bool:
        """Whether runs like those before are replayed by programs that are final, in all caches that no run is using."""
        caches = list(self._idle)
        return bool(caches) and all(programs.is_settled for programs in caches)


MIN_BODY_STEPS = 4
"""Steps of a body from which programs for it pay."""


def body_runner(
    plan: ExecutionPlan,
    providers: Mapping[str, BindingProvider] | None,
    memory: ProgramMemory | None = None,
    stackings: Mapping[int, Stacking] | None = None,
) -> BodyRunner:
    """What runs a body of control flow.

    Args:
        plan: of the body.
        providers: provider name → what binding needs; None to run every call step by step.
        memory: see ``PlanRunner``.
        stackings: see ``Subgraph.stackings``.
    """
    if providers is None or len(plan.steps) < MIN_BODY_STEPS:
        return BodyRunner(plan, stackings=stackings)
    from .program.subplans import body_as_main

    runner = PlanRunner(body_as_main(plan), providers, use_programs=True, is_body=True, memory=memory)
    return BodyRunner(plan, runner.run, stackings)
