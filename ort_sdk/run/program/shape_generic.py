"""The shape-generic path: runs without programs, by steps that providers fused for inputs of any shapes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ort_sdk.api import Array
from ort_sdk.plan import ExecutionPlan, Step
from ort_sdk.run.executor import RunControl, execute
from ort_sdk.run.types import SECONDS_BEFORE_COMPILING, BindingProvider

from .specialisation import ProgramStep, Specialisation, is_declared

if TYPE_CHECKING:
    from .lowering.fusion import Fused

__all__ = ["ShapeGenericRunner"]

RUNS_BEFORE_FUSING = 4
"""Runs after which it is likely that signatures come that get no program."""


class ShapeGenericRunner:
    """Runs a plan step by step, for any signature. For one thread at a time.

    After some runs providers are asked to fuse steps, as in a program, but for shapes that are not known. What depends on shapes
    alone stays in the plan.

    Args:
        plan: plan of a main graph.
        providers: provider name → what binding needs.
    """

    def __init__(self, plan: ExecutionPlan, providers: Mapping[str, BindingProvider]) -> None:
        self._original, self._providers = plan, providers
        self._plan = plan
        self.step_count = len(plan.steps)
        """Calls of a run; a fused kernel that computes step by step is as many as it has steps."""
        self._runs = 0
        self._seconds = 0.0
        """Time that runs took since providers were asked."""
        self._is_final = False
        """Whether providers would not fuse more if they might compile."""
        self._patience = 1
        """Doubles each time that providers were asked in vain to compile."""

    def run(self, feeds: Sequence[Array], control: RunControl) -> list[Array]:
        """Run once. Arguments and result as for ``execute``."""
        if self._is_final:
            return execute(self._plan, feeds, control)
        self._runs += 1
        if self._runs == RUNS_BEFORE_FUSING or self._seconds > SECONDS_BEFORE_COMPILING * self._patience:
            return self._fuse(feeds, control, may_compile=self._runs > RUNS_BEFORE_FUSING)
        start = time.perf_counter()
        results = execute(self._plan, feeds, control)
        if self._runs > RUNS_BEFORE_FUSING:
            self._seconds += time.perf_counter() - start
        return results

    def _fuse(self, feeds: Sequence[Array], control: RunControl, *, may_compile: bool) -> list[Array]:
        from .tracing.tracer import trace_without_guards

        results, recorded = trace_without_guards(self._original, feeds, control, providers=self._providers, may_expand=False)
        self._plan, fused = _fused(self._original, recorded.values, self._providers, may_compile=may_compile)
        self.step_count = sum(map(_calls, fused.specialisation.steps)) if fused.groups else len(self._plan.steps)
        self._is_final, self._seconds = fused.is_complete, 0.0
        self._patience *= 2 if may_compile else 1
        return results


def _fused(
    plan: ExecutionPlan, values: list[Array], providers: Mapping[str, BindingProvider], *, may_compile: bool
) -> tuple[ExecutionPlan, Fused]:
    """The plan with fused steps, and what was fused.

    Args:
        plan: what providers see all of that something depends on: nothing is folded.
        values: of one run.
        providers: provider name → what binding needs.
        may_compile: see ``FusibleProgram.may_compile``.
    """
    from .lowering.fusion import fuse_steps

    steps = [
        ProgramStep(step, step.inputs, step.outputs, returns_tuple=False, may_return_scalar=False, outputs_known=True)
        for step in _needed(plan)
    ]
    fed = {feed.index for feed in plan.feeds}
    constants = {index: array for index, array in plan.constants.arrays().items() if index not in fed}
    fetches = tuple(fetch.index for fetch in plan.fetches)
    whole = Specialisation(plan, steps, constants, values, fetches, kept_bytes=0)
    fused = fuse_steps(whole, providers, may_compile=may_compile, shapes_vary=True)
    if not fused.groups:
        return plan, fused
    return replace(plan, steps=_with_frees(plan, [launched.step for launched in fused.specialisation.steps])), fused


def _calls(launched: ProgramStep) -> int:
    """How many calls a step counts as."""
    return len(launched.members) or 1 if getattr(launched.step.kernel, "computes_step_by_step", False) else 1


def _needed(plan: ExecutionPlan) -> list[Step]:
    """The steps but those that make only what nothing depends on."""
    wanted = {fetch.index for fetch in plan.fetches}
    needed = []
    for step in reversed(plan.steps):
        if not is_declared(step) or not wanted.isdisjoint(step.outputs):
            needed.append(step)
            wanted.update(step.inputs)
    return needed[::-1]


def _with_frees(plan: ExecutionPlan, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with what ends with each of them, of the values that end in the plan."""
    ending = {index for step in plan.steps for index in step.frees}
    last = {index: position for position, step in enumerate(steps) for index in (*step.outputs, *step.inputs) if index in ending}
    frees: list[list[int]] = [[] for _ in steps]
    for index, position in last.items():
        frees[position].append(index)
    return tuple(replace(step, frees=tuple(ended)) for step, ended in zip(steps, frees, strict=True))
