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

from ort_sdk.api import CPU_DEVICE, Array
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.step_expansion import UNKNOWN, Knowledge
from ort_sdk.plan import ABSENT, ExecutionPlan, Step

from .executor import BodyRunner, RunControl, RunScope, halt, raise_step_error, require_outputs, store_outputs
from .expansion import LISTING, Expansion
from .knowledge import ALL_KNOWN, knowledge_of
from .splitting import MIN_REST_STEPS, last_readers, split_plan

__all__ = ["ProgramStep", "Recorder", "Specialisation", "specialise"]

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
    expanded_steps: int = 0
    """Steps that were put in place of control flow."""


@dataclass(slots=True)
class Recorder:
    """A program in the making: values and steps of a run, and what is known of them."""

    terminate: Any = None
    may_expand: bool = True
    """Whether kernels may put other steps in place of theirs."""
    values: list[Any] = field(default_factory=list)
    known: list[Knowledge] = field(default_factory=list)
    steps: list[ProgramStep] = field(default_factory=list)
    made_by: dict[int, int] = field(default_factory=dict)
    """Value → position of the step that makes it."""
    aliases: dict[int, int] = field(default_factory=dict)
    """Value that is another name of an earlier one → that one."""
    sequences: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Sequence that no step makes, as long as none needs more than its tensors → those."""
    original: set[int] = field(default_factory=set)
    """Constants of the plan, which cost the program nothing."""
    entered: dict[int, int] = field(default_factory=dict)
    """Identity of a plan → offset of its first frame."""
    expanded_steps: int = 0
    """Steps that are in place of control flow."""

    def enter(self, plan: ExecutionPlan) -> int:
        """Append a plan's frame; returns its offset."""
        offset = len(self.values)
        self.values.extend(plan.new_frame())
        self.known.extend([UNKNOWN] * len(plan.value_names))
        self.known[offset + ABSENT] = ALL_KNOWN
        first = self.entered.setdefault(id(plan), offset)
        for index in plan.constants:
            self.known[offset + index] = ALL_KNOWN
            if first == offset:
                self.original.add(offset + index)
            else:
                self.aliases[offset + index] = first + index
        return offset

    def add(self, value: Any, known: Knowledge) -> int:
        """A value of no plan's."""
        self.values.append(value)
        self.known.append(known)
        return len(self.values) - 1

    def run(self, plan: ExecutionPlan, offset: int) -> None:
        """Run all steps of a plan whose frame is there."""
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

    def rename(self, name: int, value: int) -> None:
        """Make ``name`` stand for a value that exists already."""
        value = self.aliases.get(value, value)
        self.aliases[name] = value
        self.values[name] = self.values[value]
        self.known[name] = self.known[value]

    def launch(self, step: Step, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Run a step as it is."""
        resolved = tuple([self.aliases.get(index, index) for index in inputs])
        self.need_lists(resolved)
        try:
            result = step.compute(*[self.values[index] for index in inputs])
            require_outputs(result, step.outputs)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        store_outputs(self.values, outputs, result)
        absent = [index for index, own in zip(outputs, step.outputs, strict=True) if own == ABSENT]
        knowledge = knowledge_of(step.kernel, [self.known[index] for index in inputs])
        for index in outputs:
            self.known[index] = knowledge
            self.made_by[index] = len(self.steps)
        for index in absent:
            self.values[index] = None
            self.known[index] = ALL_KNOWN
        results = result if type(result) is tuple else (result,)
        self.steps.append(
            ProgramStep(
                step,
                resolved,
                outputs,
                returns_tuple=type(result) is tuple,
                may_return_scalar=not knowledge.shape or any(isinstance(value, np.generic) for value in results),
                outputs_known=knowledge.shape,
            )
        )

    def need_lists(self, values: Sequence[int]) -> None:
        """Have steps make those of the values that are sequences which no step makes."""
        for index in values:
            members = self.sequences.get(index)
            if members is not None and index not in self.made_by and not self.known[index].contents:
                made = Step(LISTING.compute, members, (index,), (), LISTING, "SequenceConstruct", "", "", "", CPU_DEVICE)
                self.made_by[index] = len(self.steps)
                is_known = self.known[index].shape
                self.steps.append(ProgramStep(made, members, (index,), False, False, outputs_known=is_known))

    def elements_made_since(self, steps: int) -> int:
        """Elements of the arrays that the steps behind the first so many make."""
        made = [self.values[index] for launched in self.steps[steps:] for index in launched.outputs]
        return sum(value.size for value in made if isinstance(value, np.ndarray))

    def undo(self, values: int, steps: int) -> None:
        """Forget the values and the steps behind the first so many."""
        del self.values[values:], self.known[values:], self.steps[steps:]
        for table in (self.made_by, self.aliases, self.sequences):
            for index in [index for index in table if index >= values]:
                del table[index]
        self.original = {index for index in self.original if index < values}
        self.entered = {plan: offset for plan, offset in self.entered.items() if offset < values}

    def _are_tensors(self, indices: Sequence[int]) -> bool:
        return all(hasattr(self.values[index], "shape") for index in indices)

    def _run_step(self, step: Step, offset: int) -> None:
        if self.terminate is not None and self.terminate.terminate:
            halt()
        inputs = tuple([offset + index for index in step.inputs])
        outputs = tuple([offset + index for index in step.outputs])
        body = self._known_branch(step, inputs)
        results = self._expanded(step, inputs) if body is None else Expansion(self, step).take_body(body, (), inputs[1:])
        if results is None:
            self.launch(step, inputs, outputs)
            return
        for own, target, value in zip(step.outputs, outputs, results, strict=False):
            if own != ABSENT:
                self.rename(target, value)

    def _known_branch(self, step: Step, inputs: Sequence[int]) -> BodyRunner | None:
        select = getattr(step.kernel, "select_body", None)
        if select is None or not self.known[inputs[0]].contents:
            return None
        body = select(self.values[inputs[0]])
        return body if isinstance(body, BodyRunner) else None

    def _expanded(self, step: Step, inputs: Sequence[int]) -> Sequence[int] | None:
        """The values of what a kernel puts in place of its step; None if nothing."""
        expand = getattr(step.kernel, "expand", None) if self.may_expand else None
        if expand is None:
            return None
        given = [
            ABSENT if own == ABSENT else self.aliases.get(index, index) for own, index in zip(step.inputs, inputs, strict=True)
        ]
        try:
            found: Sequence[int] | None = expand(Expansion(self, step), given)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        return found


def specialise(
    plan: ExecutionPlan, feeds: Sequence[Array], control: RunControl, *, may_split: bool = True, may_expand: bool = True
) -> tuple[list[Array], Specialisation]:
    """Run a plan once, recording, and specialise it for the signature of these feeds.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        may_split: stop where a shape is not known; the specialisation tells what is left to run on the fetches.
        may_expand: let kernels put other steps in place of theirs.

    Returns:
        The run's fetches, and the specialisation.
    """
    recorder = Recorder(terminate=control.terminate, may_expand=may_expand)
    recorder.enter(plan)
    for feed, value in zip(plan.feeds, feeds, strict=True):
        if value is not None:
            recorder.values[feed.index] = value
            recorder.known[feed.index] = Knowledge(shape=not isinstance(value, list))
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
    recorder.need_lists([recorder.aliases.get(fetch.index, fetch.index) for fetch in plan.fetches])
    results = [recorder.values[fetch.index] for fetch in plan.fetches]
    specialisation = _reduced(plan, recorder)
    specialisation.rest, specialisation.expanded_steps = rest, recorder.expanded_steps
    return results, specialisation


def _split(plan: ExecutionPlan, count: int, recorder: Recorder) -> tuple[ExecutionPlan, ExecutionPlan]:
    live = recorder.live(plan, count)
    known = {index: _kept(recorder.values[index], is_fetched=False) for index in live if recorder.known[index].contents}
    parts = split_plan(plan, count, [index for index in live if index not in known], known)
    return parts.head, parts.rest


def _reduced(plan: ExecutionPlan, recorder: Recorder) -> Specialisation:
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
