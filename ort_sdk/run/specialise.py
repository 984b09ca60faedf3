"""Specialising a plan for one input signature: what is proved constant is folded, what is left is the program's steps.

Folding is proved, never observed. A value's *shape is known* if it follows from the signature; its *contents are known*
if they follow from the signature alone. Both spread through kernels that declare ``deterministic``, ``shape_inputs`` or
``contents_from_shapes``; a kernel that declares nothing stops them. The run that records the shapes serves the caller
like any other run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.plan import ABSENT, ExecutionPlan, Step

from .executor import BodyRunner, RunControl, RunScope, halt, raise_step_error, require_outputs, store_outputs
from .splitting import MIN_REST_STEPS, last_readers, split_plan

__all__ = ["ProgramStep", "Specialisation", "specialise"]

FOLD_LIMIT_BYTES = 1 << 22
"""A known value larger than this is computed in each run rather than kept, if something still reads it."""


@dataclass(slots=True)
class ProgramStep:
    """A step of a program, over the program's own value numbers."""

    step: Step
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    returns_tuple: bool
    may_return_scalar: bool
    """Whether the kernel may hand back a NumPy scalar instead of an array."""
    outputs_known: bool
    """Whether the outputs' shapes follow from the signature."""


@dataclass(slots=True)
class Specialisation:
    """A plan specialised for one signature."""

    plan: ExecutionPlan
    steps: list[ProgramStep]
    constants: dict[int, Array]
    """Values the steps or fetches read that are the same in every run."""
    values: list[Any]
    """Recorded values, for their shapes; contents are dropped once the program is built."""
    fetches: tuple[int, ...]
    kept_bytes: int
    """Bytes of folded values the program keeps alive."""
    rest: ExecutionPlan | None = None
    """What is left to run when these steps have, on their fetches."""


@dataclass(slots=True)
class _Knowledge:
    shape: bool = False
    contents: bool = False


@dataclass(slots=True)
class _Recorder:
    terminate: Any = None
    values: list[Any] = field(default_factory=list)
    known: list[_Knowledge] = field(default_factory=list)
    steps: list[ProgramStep] = field(default_factory=list)
    made_by: dict[int, int] = field(default_factory=dict)
    """Value → position of the step that makes it."""
    aliases: dict[int, int] = field(default_factory=dict)
    """Value of an inlined branch that is another name of an earlier one → that one."""
    original: set[int] = field(default_factory=set)
    """Constants of the plan, which cost the program nothing."""

    def enter(self, plan: ExecutionPlan) -> int:
        """Append a plan's frame; returns its offset."""
        offset = len(self.values)
        self.values.extend(plan.new_frame())
        self.known.extend(_Knowledge() for _ in plan.value_names)
        self.known[offset + ABSENT] = _Knowledge(shape=True, contents=True)
        for index in plan.constants:
            self.known[offset + index] = _Knowledge(shape=True, contents=True)
            self.original.add(offset + index)
        return offset

    def run(self, plan: ExecutionPlan, offset: int) -> None:
        for step in plan.steps:
            self._run_step(step, offset)

    def run_head(self, plan: ExecutionPlan) -> int:
        """Run a main plan up to where splitting it pays; returns how many steps that took."""
        last = last_readers(plan)
        unknown: set[int] = set()
        for position, step in enumerate(plan.steps):
            self._run_step(step, 0)
            unknown.update(index for index in step.outputs if not self.known[index].shape)
            unknown = {index for index in unknown if last.get(index, 0) > position}
            count = position + 1
            if unknown and len(plan.steps) - count >= MIN_REST_STEPS and self._are_tensors(self.live(plan, count)):
                return count
        return len(plan.steps)

    def live(self, plan: ExecutionPlan, count: int) -> list[int]:
        """Values that the steps behind the first ``count`` of a main plan read, and its fetches, if they exist by then."""
        rest = plan.steps[count:]
        made = {index for step in rest for index in step.outputs}
        read = dict.fromkeys(index for step in rest for index in step.inputs)
        read.update(dict.fromkeys(fetch.index for fetch in plan.fetches))
        return [index for index in read if index not in made | self.original and self.values[index] is not None]

    def _are_tensors(self, indices: Sequence[int]) -> bool:
        return all(hasattr(self.values[index], "shape") for index in indices)

    def _run_step(self, step: Step, offset: int) -> None:
        if self.terminate is not None and self.terminate.terminate:
            halt()
        inputs = tuple(offset + index for index in step.inputs)
        outputs = tuple(offset + index for index in step.outputs)
        body = self._known_branch(step, inputs)
        if body is not None:
            self._inline(body, inputs, outputs)
        else:
            self._launch(step, inputs, outputs)

    def _known_branch(self, step: Step, inputs: Sequence[int]) -> BodyRunner | None:
        select = getattr(step.kernel, "select_body", None)
        if select is None or not self.known[inputs[0]].contents:
            return None
        body = select(self.values[inputs[0]])
        return body if isinstance(body, BodyRunner) else None

    def _inline(self, body: BodyRunner, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Take the steps of the branch that is always taken in place of the If, whose only own input is the condition."""
        plan = body.plan
        offset = self.enter(plan)
        for position, index in plan.captures:
            self._rename(offset + index, inputs[1 + position])
        self.run(plan, offset)
        for target, fetch in zip(outputs, plan.fetches, strict=True):
            self._rename(target, offset + fetch.index)

    def _rename(self, name: int, value: int) -> None:
        """Make ``name`` stand for a value that exists already."""
        value = self.aliases.get(value, value)
        self.aliases[name] = value
        self.values[name] = self.values[value]
        self.known[name] = self.known[value]

    def _launch(self, step: Step, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        try:
            result = step.compute(*[self.values[index] for index in inputs])
            require_outputs(result, step.outputs)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        store_outputs(self.values, outputs, result)
        absent = [index for index, own in zip(outputs, step.outputs, strict=True) if own == ABSENT]
        knowledge = self._knowledge(step, inputs)
        for index in outputs:
            self.known[index] = knowledge
            self.made_by[index] = len(self.steps)
        for index in absent:
            self.values[index] = None
            self.known[index] = _Knowledge(shape=True, contents=True)
        results = result if type(result) is tuple else (result,)
        self.steps.append(
            ProgramStep(
                step,
                tuple(self.aliases.get(index, index) for index in inputs),
                outputs,
                returns_tuple=type(result) is tuple,
                may_return_scalar=not knowledge.shape or any(isinstance(value, np.generic) for value in results),
                outputs_known=knowledge.shape,
            )
        )

    def _knowledge(self, step: Step, inputs: Sequence[int]) -> _Knowledge:
        kernel = step.kernel
        shapes = all(self.known[index].shape for index in inputs)
        if getattr(kernel, "contents_from_shapes", False) and shapes:
            return _Knowledge(shape=True, contents=True)
        if not getattr(kernel, "deterministic", False):
            return _Knowledge()
        if all(self.known[index].contents for index in inputs):
            return _Knowledge(shape=True, contents=True)
        shape_inputs = getattr(kernel, "shape_inputs", None)
        if shape_inputs is None or not shapes:
            return _Knowledge()
        return _Knowledge(shape=all(self.known[inputs[index]].contents for index in shape_inputs if index < len(inputs)))


def specialise(
    plan: ExecutionPlan, feeds: Sequence[Array], control: RunControl, *, may_split: bool = True
) -> tuple[list[Array], Specialisation]:
    """Run a plan once, recording, and specialise it for the signature of these feeds.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        may_split: stop where a shape is not known; the specialisation tells what is left to run on the fetches.

    Returns:
        The run's fetches, and the specialisation.
    """
    recorder = _Recorder(terminate=control.terminate)
    recorder.enter(plan)
    for feed, value in zip(plan.feeds, feeds, strict=True):
        if value is not None:
            recorder.values[feed.index] = value
            recorder.known[feed.index] = _Knowledge(shape=True)
            recorder.original.discard(feed.index)
    count = len(plan.steps)
    with RunScope(control):
        if may_split:
            count = recorder.run_head(plan)
        else:
            recorder.run(plan, 0)
    rest = None
    if count < len(plan.steps):
        plan, rest = _split(plan, count, recorder)
    results = [recorder.values[fetch.index] for fetch in plan.fetches]
    specialisation = _reduced(plan, recorder)
    specialisation.rest = rest
    return results, specialisation


def _split(plan: ExecutionPlan, count: int, recorder: _Recorder) -> tuple[ExecutionPlan, ExecutionPlan]:
    live = recorder.live(plan, count)
    known = {index: _kept(recorder.values[index], is_fetched=False) for index in live if recorder.known[index].contents}
    parts = split_plan(plan, count, [index for index in live if index not in known], known)
    return parts.head, parts.rest


def _reduced(plan: ExecutionPlan, recorder: _Recorder) -> Specialisation:
    """Keep the steps whose results are read and not known, or known and too large to keep."""
    fetches = tuple(recorder.aliases.get(fetch.index, fetch.index) for fetch in plan.fetches)
    # A kernel that declares nothing may do more than its outputs show: it runs even if nobody reads them.
    kept = {position for position, launched in enumerate(recorder.steps) if not _is_declared(launched)}
    wanted = [*fetches, *(index for position in kept for index in recorder.steps[position].inputs)]
    constants: dict[int, Array] = {}
    while wanted:
        index = wanted.pop()
        position = recorder.made_by.get(index)
        value = recorder.values[index]
        if recorder.known[index].contents and (position is None or _nbytes(value) <= FOLD_LIMIT_BYTES):
            constants[index] = value if index in recorder.original else _kept(value, is_fetched=index in fetches)
        elif position is not None and position not in kept:
            kept.add(position)
            wanted.extend(recorder.steps[position].inputs)
    steps = [recorder.steps[position] for position in sorted(kept)]
    kept_bytes = sum(_nbytes(value) for index, value in constants.items() if index not in recorder.original)
    return Specialisation(plan, steps, constants, recorder.values, fetches, kept_bytes)


def _is_declared(launched: ProgramStep) -> bool:
    kernel = launched.step.kernel
    return kernel is None or bool(getattr(kernel, "deterministic", False) or getattr(kernel, "contents_from_shapes", False))


def _kept(value: Any, *, is_fetched: bool) -> Any:
    """A folded value as the program keeps it: not writable, and not the array the recording run hands to the user."""
    if not isinstance(value, np.ndarray):
        return value
    kept = value.copy() if is_fetched else value.view()
    kept.flags.writeable = False
    return kept


def _nbytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(_nbytes(element) for element in value)
    return int(getattr(value, "nbytes", 0))
