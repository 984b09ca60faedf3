"""Tracing: one run of a plan, recorded as a trace that is partially evaluated for the run's input signature.

What is folded is proved, never observed. Each value of the trace has an abstract value beside it: its *shape is known* if it
follows from the signature, its *value is known* if its contents follow from the signature alone. Both spread through kernels
that declare ``deterministic``, ``shape_inputs`` or ``contents_from_shapes``; a kernel that declares nothing stops them. A shape
that is known only from the run gets a guard. The traced run serves the caller like any other run.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array
from ort_sdk.api.step_expansion import UNKNOWN, AbstractValue
from ort_sdk.plan import ABSENT, ExecutionPlan, Step
from ort_sdk.run.executor import BodyRunner, RunControl, RunScope, halt, raise_step_error
from ort_sdk.run.program.dynamic_shapes import DynamicSignature
from ort_sdk.run.program.guards import BoundedNumber, Exited, Guard, guard_step
from ort_sdk.run.program.specialisation import ProgramStep, Specialisation
from ort_sdk.run.types import BindingProvider

from .bounded_numbers import bounded_number
from .device_outlines import DeviceOutlines
from .inlining import Inliner
from .partial_evaluation import FOLD_LIMIT_BYTES, folded, has_tensors, is_tensor, nbytes_of, partially_evaluated
from .trace import Trace

__all__ = ["Tracer", "trace", "trace_without_guards"]

MAX_FOLDED_BYTES = 1 << 26
"""Known values that one trace keeps; those after are computed in each run, too."""
MAX_GUARDS = 64
"""Guards of one program, at most."""
MIN_CONTINUATION_STEPS = 4
"""Steps of a continuation from which a guard pays."""


class Tracer(Trace):
    """Traces one run: launches the steps of plans, inlines bodies, and inserts guards."""

    __slots__ = ()

    def run(self, plan: ExecutionPlan, offset: int) -> None:
        """Trace all steps of a plan whose frame is there."""
        for step in plan.steps:
            self._run_step(step, offset)
            self._end(offset + index for index in step.frees)

    def run_guarded(
        self, plan: ExecutionPlan, ends: Container[int], shapes: Mapping[int, tuple[int, ...] | None]
    ) -> Guard | None:
        """Trace a main plan, with guards where shapes are not known.

        Args:
            plan: its frame is there.
            ends: counts of steps after which a guard ends the trace, if there is one.
            shapes: of values in another run; those that have other shapes now get no guard.

        Returns:
            The guard at which the trace ended; None if all steps have run.
        """
        last = {index: position for position, step in enumerate(plan.steps) for index in step.inputs}
        unknown: set[int] = set()
        guards = 0
        for count, step in enumerate(plan.steps, 1):
            bounded = bounded_number(self, step)
            if bounded is not None and not self._has_bounds(bounded):
                may_guard = guards < MAX_GUARDS and len(plan.steps) - count >= MIN_CONTINUATION_STEPS
                guard = self._guarded(plan, count - 1, (), always_exits=False, bounded=bounded) if may_guard else None
                guards += guard is not None
            self.is_bounded = bounded is not None and self._has_bounds(bounded)
            self._run_step(step, 0)
            self.is_bounded = False
            self._end(step.frees)
            unknown.update(index for index in step.outputs if not self.known[index].shape_known and self._is_as_in(shapes, index))
            # What no later step reads needs no guard: no step would be specialised for its shape.
            unknown = {index for index in unknown if last.get(index, 0) >= count}
            if unknown and guards < MAX_GUARDS and len(plan.steps) - count >= MIN_CONTINUATION_STEPS:
                guard = self._guarded(plan, count, unknown, always_exits=count in ends)
                if guard is not None:
                    if guard.always_exits:
                        return guard
                    guards += 1
                    unknown = set()
        return None

    def _has_bounds(self, wanted: BoundedNumber) -> bool:
        """Whether a guard before has checked at least as narrow bounds."""
        checked = self.bounded.get(wanted.value)
        return checked is not None and wanted.least <= checked.least and checked.most <= wanted.most

    def _guarded(
        self,
        plan: ExecutionPlan,
        count: int,
        unknown: Collection[int],
        *,
        always_exits: bool,
        bounded: BoundedNumber | None = None,
    ) -> Guard | None:
        """Guard the shapes of values, which are known then, or a number; None if something that is no tensor would be live."""
        crossing = self.live(plan, count)
        if not all(is_tensor(self.values[index]) for index in (*unknown, *crossing)):
            return None
        fetched = {fetch.index for fetch in plan.fetches}
        known = {index: folded(self.values[index], is_fetched=index in fetched) for index in crossing if self._is_folded(index)}
        live = tuple(index for index in crossing if index not in known)
        read = tuple(self.aliases.get(index, index) for index in live)
        checked = tuple(dict.fromkeys(self.aliases.get(index, index) for index in unknown))
        guard = Guard(count, checked, live, known, always_exits, bounded)
        self.steps.append(
            ProgramStep(
                guard_step(read), read, (), returns_tuple=False, may_return_scalar=False, outputs_known=False, guard=guard
            )
        )
        for index in (*unknown, *checked):
            self.known[index] = AbstractValue(shape_known=True)
        if bounded is not None:
            self.bounded[bounded.value] = bounded
        return guard

    def _is_as_in(self, shapes: Mapping[int, tuple[int, ...] | None], index: int) -> bool:
        """Whether a value has the shape it had in another run: a guard on a shape that varies would fail in most runs."""
        return index not in shapes or shapes[index] == getattr(self.values[index], "shape", None)

    def _is_folded(self, index: int) -> bool:
        """Whether a value is known, and small enough to be kept."""
        return self.known[index].value_known and nbytes_of(self.values[index]) <= FOLD_LIMIT_BYTES

    def live(self, plan: ExecutionPlan, count: int) -> list[int]:
        """Values that the steps after the first ``count`` of a main plan read, and its fetches, if they exist by then."""
        rest = plan.steps[count:]
        made = {index for step in rest for index in step.outputs}
        read = dict.fromkeys(index for step in rest for index in step.inputs)
        read.update(dict.fromkeys(fetch.index for fetch in plan.fetches))
        return [index for index in read if index not in made | self.original and self.values[index] is not None]

    def _run_step(self, step: Step, offset: int) -> None:
        """Trace one step: the branch or the unrolled loop that replaces it, or the step as it is."""
        if self.terminate is not None and self.terminate.terminate:
            halt()
        inputs = tuple([offset + index for index in step.inputs])
        outputs = tuple([offset + index for index in step.outputs])
        first_inside = len(self.values)
        body = self._known_branch(step, inputs)
        results = self._inlined(step, inputs) if body is None else Inliner(self, step, self.run).take_body(body, (), inputs[1:])
        if results is None:
            self.launch(step, inputs, outputs)
            return
        for own, target, value in zip(step.outputs, outputs, results, strict=False):
            if own != ABSENT:
                self.rename(target, value)
        self._end(range(first_inside, len(self.values)))

    def _end(self, names: Iterable[int]) -> None:
        """Drop values that no later step reads, of the names that ended."""
        for name in names:
            for index in self.lifetimes.end(name):
                if index in self.made_by:
                    self._drop(index)
                elif index in self.sequences and not self.known[index].value_known:
                    self._replace(index, [])

    def _drop(self, index: int) -> None:
        """Keep of a dead value what making the program needs: all of it if it is small and known, else its outline."""
        value, known = self.values[index], self.known[index]
        nbytes = nbytes_of(value)
        if known.value_known and nbytes <= FOLD_LIMIT_BYTES and self.folded_bytes + nbytes <= MAX_FOLDED_BYTES:
            self.folded_bytes += nbytes
            return
        outline = self.outlines.of(index) if isinstance(value, np.ndarray) else self.device_outlines.of(index)
        if outline is not None or has_tensors(value):
            self._replace(index, [] if outline is None else outline)

    def _replace(self, index: int, value: Any) -> None:
        """Replace a value by something without contents: the steps that make it run in each run."""
        shape = self.known[index].shape_known
        for name in self.lifetimes.names(index):
            self.values[name] = value
            self.known[name] = AbstractValue(shape_known=shape)

    def _known_branch(self, step: Step, inputs: Sequence[int]) -> BodyRunner | None:
        """The body that an If takes, where its condition is known; None else."""
        select = getattr(step.kernel, "select_body", None)
        if select is None or not self.known[inputs[0]].value_known:
            return None
        try:
            body = select(self.values[inputs[0]])
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        return body if isinstance(body, BodyRunner) else None

    def _inlined(self, step: Step, inputs: Sequence[int]) -> Sequence[int] | None:
        """The values of what a kernel replaces its step by; None if nothing."""
        expand = getattr(step.kernel, "expand", None) if self.may_expand else None
        if expand is None:
            return None
        given = [
            ABSENT if own == ABSENT else self.aliases.get(index, index) for own, index in zip(step.inputs, inputs, strict=True)
        ]
        try:
            found: Sequence[int] | None = expand(Inliner(self, step, self.run), given)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        return found


def trace(
    plan: ExecutionPlan,
    feeds: Sequence[Array],
    control: RunControl,
    *,
    providers: Mapping[str, BindingProvider],
    ends: Container[int] = (),
    dynamic: DynamicSignature | None = None,
) -> tuple[list[Array] | Exited, Specialisation]:
    """Run a plan once, and specialise it for the signature of these feeds and for the shapes that guards check.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        providers: provider name → what binding needs.
        ends: counts of steps after which a guard ends the program, if there is one.
        dynamic: which feeds have dynamic shapes, if any do.

    Returns:
        The run's fetches, or the side exit it took; and the specialisation.
    """
    tracer = _tracer(plan, feeds, control, providers, may_expand=True)
    dynamic_feeds = frozenset[int]() if dynamic is None else dynamic.feeds_of(plan)
    for index in dynamic_feeds:
        tracer.known[index] = UNKNOWN
    with RunScope(control):
        end = tracer.run_guarded(plan, ends, {} if dynamic is None else dynamic.shapes)
    results: list[Array] | Exited
    if end is None:
        results, specialisation = _finished(plan, tracer)
    else:
        results = Exited(end, [tracer.values[index] for index in end.live])
        specialisation = _specialised(plan, tracer, ())
    specialisation.dynamic_feeds = dynamic_feeds
    return results, specialisation


def trace_without_guards(
    plan: ExecutionPlan,
    feeds: Sequence[Array],
    control: RunControl,
    *,
    providers: Mapping[str, BindingProvider],
    may_expand: bool,
) -> tuple[list[Array], Specialisation]:
    """The same for the signature alone: a shape that does not follow from it stays unknown.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        providers: provider name → what binding needs.
        may_expand: let kernels replace their step by others.
    """
    tracer = _tracer(plan, feeds, control, providers, may_expand=may_expand)
    with RunScope(control):
        tracer.run(plan, 0)
    return _finished(plan, tracer)


def _tracer(
    plan: ExecutionPlan,
    feeds: Sequence[Array],
    control: RunControl,
    providers: Mapping[str, BindingProvider],
    *,
    may_expand: bool,
) -> Tracer:
    """A tracer that has the plan's constants, which are known, and its feeds, whose shapes are in the signature."""
    tracer = Tracer(terminate=control.terminate, may_expand=may_expand, device_outlines=DeviceOutlines(providers))
    tracer.enter(plan)
    for feed, value in zip(plan.feeds, feeds, strict=True):
        if value is not None:
            tracer.values[feed.index] = value
            tracer.known[feed.index] = AbstractValue(shape_known=not isinstance(value, list))
            tracer.original.discard(feed.index)
    return tracer


def _finished(plan: ExecutionPlan, tracer: Tracer) -> tuple[list[Array], Specialisation]:
    """The fetches of a trace that ran to the end, and what partial evaluation leaves of it."""
    fetches = tuple(tracer.aliases.get(fetch.index, fetch.index) for fetch in plan.fetches)
    tracer.need_lists(fetches)
    return [tracer.values[fetch.index] for fetch in plan.fetches], _specialised(plan, tracer, fetches)


def _specialised(plan: ExecutionPlan, tracer: Tracer, fetches: tuple[int, ...]) -> Specialisation:
    """What partial evaluation leaves of a trace, without arrays of devices but constants and feeds."""
    specialisation = partially_evaluated(plan, tracer, fetches)
    for index, outline in tracer.device_outlines.items():
        if index not in specialisation.constants:
            for name in tracer.lifetimes.names(index):
                specialisation.values[name] = outline
    return specialisation
