"""Specialising a plan for one input signature: what is proved constant is folded, what is left is the program's steps.

Folding is proved, never observed. A value's *shape is known* if it follows from the signature; its *contents are known*
if they follow from the signature alone. Both spread through kernels that declare ``deterministic``, ``shape_inputs`` or
``contents_from_shapes``; a kernel that declares nothing stops them. The run that records the shapes serves the caller
like any other run.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.step_expansion import UNKNOWN, Knowledge
from ort_sdk.plan import ABSENT, ExecutionPlan, Step

from .changing_feeds import OpenSignature
from .executor import BodyRunner, RunControl, RunScope, halt, raise_step_error, require_outputs, store_outputs
from .expansion import LISTING, Expansion
from .guards import Guard, Unfinished, guard_step
from .knowledge import ALL_KNOWN, is_declared, knowledge_of
from .lifetimes import Lifetimes
from .outlines import Outlines

__all__ = ["ProgramStep", "Recorder", "Specialisation", "specialise", "specialise_without_guards"]

FOLD_LIMIT_BYTES = 1 << 22
"""A known value larger than this is computed in each run rather than kept, if something still reads it."""
MAX_FOLDED_BYTES = 1 << 26
"""Known values that one recording keeps; those behind are computed in each run, too."""
MAX_GUARDS = 64
"""Guards of one program, at most."""
MIN_REST_STEPS = 4
"""Steps behind a guard from which it pays."""


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
    guard: Guard | None = None
    """What the step is there for, if it is no step of a plan's."""


@dataclass(slots=True)
class Specialisation:
    """A plan specialised for one signature."""

    plan: ExecutionPlan
    steps: list[ProgramStep]
    constants: dict[int, Array]
    """Values the steps or fetches read that are the same in every run."""
    values: list[Any]
    """Recorded values, for their shapes, or their outlines; contents are dropped once the program is built."""
    fetches: tuple[int, ...]
    kept_bytes: int
    """Bytes of folded values the program keeps alive."""
    expanded_steps: int = 0
    """Steps that were put in place of control flow."""
    open_feeds: frozenset[int] = frozenset()
    """Feeds that have other shapes in other runs."""

    @property
    def unknown_steps(self) -> int:
        """How many steps' results have shapes that are not known: a call each, at least, if none of them is fused."""
        return sum(not launched.outputs_known and launched.guard is None for launched in self.steps)

    @property
    def guards(self) -> list[Guard]:
        """In order."""
        return [launched.guard for launched in self.steps if launched.guard is not None]

    @property
    def checked(self) -> set[int]:
        """Values whose shapes guards look at: they are known only behind those."""
        return {index for guard in self.guards for index in guard.checked}


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
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    outlines: Outlines = field(default_factory=Outlines)
    folded_bytes: int = 0
    """Of known values that no step behind reads, and that are kept since the program's steps may."""

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
            self._end(offset + index for index in step.frees)

    def run_guarded(
        self, plan: ExecutionPlan, ends: Container[int], shapes: Mapping[int, tuple[int, ...] | None]
    ) -> Guard | None:
        """Run a main plan, with guards where shapes are not known.

        Args:
            plan: its frame is there.
            ends: counts of steps behind which not to go on if there is a guard.
            shapes: of values in another run; those that have other shapes now get no guard.

        Returns:
            The guard at which it ended; None if all steps have run.
        """
        last = {index: position for position, step in enumerate(plan.steps) for index in step.inputs}
        unknown: set[int] = set()
        guards = 0
        for count, step in enumerate(plan.steps, 1):
            self._run_step(step, 0)
            self._end(step.frees)
            unknown.update(index for index in step.outputs if not self.known[index].shape and self._is_as_in(shapes, index))
            unknown = {index for index in unknown if last.get(index, 0) >= count}
            if unknown and guards < MAX_GUARDS and len(plan.steps) - count >= MIN_REST_STEPS:
                guard = self._guarded(plan, count, unknown, is_end=count in ends)
                if guard is not None:
                    if guard.is_end:
                        return guard
                    guards += 1
                    unknown = set()
        return None

    def _guarded(self, plan: ExecutionPlan, count: int, unknown: Collection[int], *, is_end: bool) -> Guard | None:
        """Guard the shapes of values, so that they are known behind; None if something that is no tensor would cross over."""
        crossing = self.live(plan, count)
        if not all(_is_tensor(self.values[index]) for index in (*unknown, *crossing)):
            return None
        fetched = {fetch.index for fetch in plan.fetches}
        known = {index: _kept(self.values[index], is_fetched=index in fetched) for index in crossing if self._is_kept(index)}
        live = tuple(index for index in crossing if index not in known)
        read = tuple(self.aliases.get(index, index) for index in live)
        checked = tuple(dict.fromkeys(self.aliases.get(index, index) for index in unknown))
        guard = Guard(count, checked, live, known, is_end)
        self.steps.append(
            ProgramStep(
                guard_step(read), read, (), returns_tuple=False, may_return_scalar=False, outputs_known=False, guard=guard
            )
        )
        for index in (*unknown, *checked):
            self.known[index] = Knowledge(shape=True)
        return guard

    def _is_as_in(self, shapes: Mapping[int, tuple[int, ...] | None], index: int) -> bool:
        return index not in shapes or shapes[index] == getattr(self.values[index], "shape", None)

    def _is_kept(self, index: int) -> bool:
        """Whether a value is known, and small enough to be kept."""
        return self.known[index].contents and _nbytes(self.values[index]) <= FOLD_LIMIT_BYTES

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
        self.lifetimes.name(name, value)

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
            self.outlines.draw(index, self.values[index], [(read, self.values[read]) for read in resolved])
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
        self.lifetimes.forget_from(values)
        self.outlines.forget_from(values)
        self.original = {index for index in self.original if index < values}
        self.entered = {plan: offset for plan, offset in self.entered.items() if offset < values}

    def _run_step(self, step: Step, offset: int) -> None:
        if self.terminate is not None and self.terminate.terminate:
            halt()
        inputs = tuple([offset + index for index in step.inputs])
        outputs = tuple([offset + index for index in step.outputs])
        first_inside = len(self.values)
        body = self._known_branch(step, inputs)
        results = self._expanded(step, inputs) if body is None else Expansion(self, step).take_body(body, (), inputs[1:])
        if results is None:
            self.launch(step, inputs, outputs)
            return
        for own, target, value in zip(step.outputs, outputs, results, strict=False):
            if own != ABSENT:
                self.rename(target, value)
        self._end(range(first_inside, len(self.values)))

    def _end(self, names: Iterable[int]) -> None:
        """Let go of what no step behind reads, of the names that ended."""
        for name in names:
            for index in self.lifetimes.end(name):
                if index in self.made_by:
                    self._drop(index)
                elif index in self.sequences and not self.known[index].contents:
                    self._replace(index, [])

    def _drop(self, index: int) -> None:
        """Keep of a value what making the program needs: all of it if it is small and known, else its outline."""
        value, known = self.values[index], self.known[index]
        nbytes = _nbytes(value)
        if known.contents and nbytes <= FOLD_LIMIT_BYTES and self.folded_bytes + nbytes <= MAX_FOLDED_BYTES:
            self.folded_bytes += nbytes
            return
        outline = self.outlines.of(index)
        if outline is not None or _has_tensors(value):
            self._replace(index, [] if outline is None else outline)

    def _replace(self, index: int, value: Any) -> None:
        """Put something that has no contents in a value's place: the steps that make it run in each run."""
        shape = self.known[index].shape
        for name in self.lifetimes.names(index):
            self.values[name] = value
            self.known[name] = Knowledge(shape=shape)

    def _known_branch(self, step: Step, inputs: Sequence[int]) -> BodyRunner | None:
        select = getattr(step.kernel, "select_body", None)
        if select is None or not self.known[inputs[0]].contents:
            return None
        try:
            body = select(self.values[inputs[0]])
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
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
    plan: ExecutionPlan,
    feeds: Sequence[Array],
    control: RunControl,
    *,
    ends: Container[int] = (),
    opened: OpenSignature | None = None,
) -> tuple[list[Array] | Unfinished, Specialisation]:
    """Run a plan once, recording, and specialise it for the signature of these feeds and for shapes that guards look at.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        ends: counts of steps behind which to end if there is a guard.
        opened: which feeds have other shapes in other runs, if any do.

    Returns:
        The run's fetches, or what it ended with; and the specialisation.
    """
    recorder = _recorder(plan, feeds, control, may_expand=True)
    open_feeds = frozenset[int]() if opened is None else opened.feeds_of(plan)
    for index in open_feeds:
        recorder.known[index] = UNKNOWN
    with RunScope(control):
        end = recorder.run_guarded(plan, ends, {} if opened is None else opened.shapes)
    results: list[Array] | Unfinished
    if end is None:
        results, specialisation = _finished(plan, recorder)
    else:
        results = Unfinished(end, [recorder.values[index] for index in end.live])
        specialisation = _reduced(plan, recorder, ())
    specialisation.open_feeds = open_feeds
    return results, specialisation


def specialise_without_guards(
    plan: ExecutionPlan, feeds: Sequence[Array], control: RunControl, *, may_expand: bool
) -> tuple[list[Array], Specialisation]:
    """The same for the signature alone.

    Args:
        plan: plan of a main graph.
        feeds: as for ``execute``.
        control: what may interrupt the run.
        may_expand: let kernels put other steps in place of theirs.
    """
    recorder = _recorder(plan, feeds, control, may_expand=may_expand)
    with RunScope(control):
        recorder.run(plan, 0)
    return _finished(plan, recorder)


def _recorder(plan: ExecutionPlan, feeds: Sequence[Array], control: RunControl, *, may_expand: bool) -> Recorder:
    recorder = Recorder(terminate=control.terminate, may_expand=may_expand)
    recorder.enter(plan)
    for feed, value in zip(plan.feeds, feeds, strict=True):
        if value is not None:
            recorder.values[feed.index] = value
            recorder.known[feed.index] = Knowledge(shape=not isinstance(value, list))
            recorder.original.discard(feed.index)
    return recorder


def _finished(plan: ExecutionPlan, recorder: Recorder) -> tuple[list[Array], Specialisation]:
    fetches = tuple(recorder.aliases.get(fetch.index, fetch.index) for fetch in plan.fetches)
    recorder.need_lists(fetches)
    return [recorder.values[fetch.index] for fetch in plan.fetches], _reduced(plan, recorder, fetches)


def _reduced(plan: ExecutionPlan, recorder: Recorder, fetches: tuple[int, ...]) -> Specialisation:
    """Keep the steps whose results are read and not known, or known and too large to keep."""
    # A kernel that declares nothing may do more than its outputs show: it runs even if nobody reads them.
    # Of a guard, what is known behind it depends on it.
    kept = {
        position
        for position, launched in enumerate(recorder.steps)
        if launched.guard is not None or not is_declared(launched.step)
    }
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
    return Specialisation(plan, steps, constants, recorder.values, fetches, kept_bytes, expanded_steps=recorder.expanded_steps)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _has_tensors(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_tensor, value))


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
