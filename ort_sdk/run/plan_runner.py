"""Running a plan again and again: step by step, or by a program once an input signature is seen a second time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass
from ort_sdk.memory import Arena
from ort_sdk.plan import ExecutionPlan

from .binding import BindingProvider, bind_steps
from .executor import BodyRunner, RunControl, execute
from .fusing import fuse_steps
from .program import Program
from .specialise import specialise
from .splitting import body_as_main
from .varying import SECONDS_BEFORE_COMPILING, VaryingRuns

__all__ = ["PlanRunner", "ProgramRow", "body_runner"]

MAX_PROGRAMS = 32
MAX_SEEN = 256
SIGNATURES_PER_SIGHTING = 4
"""Signatures that came rarely so far, for each of which one has to be seen once more to get a program: where there are many,
most do not come back often."""
RUNS_THAT_PAY = 32
"""Runs after which a program has saved about what making it took."""
STEPS_PER_SIGHTING = 1 << 7
"""Steps in place of control flow that take about as long to make as some runs: for so many, a further signature has to be seen
once more to get a program."""
MAX_KEPT_BYTES = 64 << 20
"""Folded values that the programs of one session may keep alive."""
MAX_SPLITS = 64
"""Parts into which a plan is split, at most, where shapes are known only when a step has run."""


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """One program, for listings."""

    signature: tuple[tuple[tuple[int, ...], Any] | None, ...]
    """(shape, dtype) of each feed; None for one left at its default."""
    operators: tuple[str, ...]
    """Operators still run, in order: the others follow from the signature."""
    bound_count: int
    """How many of them run on buffers of their own."""
    fused: tuple[tuple[str, ...], ...]
    """Operators of each step that does the work of several."""
    layout_copies: int
    """Values copied into another layout in each run."""
    kept_bytes: int
    """Bytes of folded values."""


class PlanRunner:
    """Runs one plan. Thread-safe: runs at the same time use program sets of their own.

    Args:
        plan: plan of a main graph.
        providers: provider name → what binding needs.
        use_programs: False runs every call step by step.
    """

    def __init__(self, plan: ExecutionPlan, providers: Mapping[str, BindingProvider], *, use_programs: bool) -> None:
        self.plan = plan
        self._providers = providers
        self._use_programs = use_programs
        self._idle: list[_ProgramSet] = []

    def run(self, feeds: Sequence[Array], control: RunControl) -> list[Array]:
        """Run once. Arguments and result as for ``execute``."""
        if not self._use_programs or control.observer is not None:
            return execute(self.plan, feeds, control)
        signature = _signature(feeds)
        if signature is None:
            return execute(self.plan, feeds, control)
        # list.pop and append are atomic, which is all the locking that handing out sets needs.
        try:
            programs = self._idle.pop()
        except IndexError:
            programs = _ProgramSet(self.plan, self._providers)
        try:
            return programs.run(signature, feeds, control)
        finally:
            self._idle.append(programs)

    def report(self) -> tuple[ProgramRow, ...]:
        """The programs made so far, of all sets that no run is using, oldest first."""
        return tuple(row for programs in list(self._idle) for row in programs.report())

    @property
    def is_settled(self) -> bool:
        """Whether runs like those before are replayed by programs that will not be made anew, of all sets no run is using."""
        sets = list(self._idle)
        return bool(sets) and all(programs.is_settled for programs in sets)


def _give_back_freed_memory() -> None:
    """Let go of what runs step by step made, and of what packing left: programs use memory of their own."""
    from ort_sdk.memory.freed_memory import give_back_freed_memory

    give_back_freed_memory()


MIN_BODY_STEPS = 4
"""Steps of a body from which programs for it pay."""


def body_runner(plan: ExecutionPlan, providers: Mapping[str, BindingProvider] | None) -> BodyRunner:
    """What runs a body of control flow.

    Args:
        plan: of the body.
        providers: provider name → what binding needs; None to run every call step by step.
    """
    if providers is None or len(plan.steps) < MIN_BODY_STEPS:
        return BodyRunner(plan)
    return BodyRunner(plan, PlanRunner(body_as_main(plan), providers, use_programs=True).run)


def _signature(feeds: Sequence[Array]) -> tuple[Any, ...] | None:
    """Shapes and types of the feeds; None if one is no tensor."""
    try:
        return tuple([None if value is None else (value.shape, value.dtype) for value in feeds])
    except AttributeError:
        return None


@dataclass(slots=True)
class _Kept:
    """A program as its set keeps it."""

    program: Program
    kept_bytes: int
    is_final: bool
    """Whether it need not be made again once it has run for long enough that compiling pays."""
    seconds: float = 0.0
    """Time its runs took, until it is final."""
    runs: int = 0
    rest: _ProgramSet | None = None
    """Programs of what is left to run on the program's fetches."""


class _ProgramSet:
    """Programs by signature, and the arena they share; used by one run at a time.

    Args:
        plan: what they are programs of.
        providers: provider name → what binding needs.
        arenas: of this plan's programs, of those of its rests, and so on; shared by all rests, which run one at a time.
        depth: how many plans this one is a rest of.
    """

    def __init__(
        self, plan: ExecutionPlan, providers: Mapping[str, BindingProvider], arenas: list[Arena] | None = None, depth: int = 0
    ) -> None:
        self.plan = plan
        self._providers = providers
        self._arenas = [] if arenas is None else arenas
        self._depth = depth
        if len(self._arenas) == depth:
            self._arenas.append(Arena())
        self._programs: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._seen: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        """How often a signature was seen since it had a program."""
        self._needed = 2 if depth == 0 else 1
        """How often one has to be seen to get a program; the first of a rest follows one that was."""
        self._further_needed = 0
        """How much more often signatures behind the first have to be, by what the last program took to make."""
        self._kept_bytes = 0
        self._varying = VaryingRuns(plan, providers)

    def run(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        found = self._programs.get(signature)
        if found is not None:
            self._programs.move_to_end(signature)
            found.runs += 1
            if not found.is_final:
                return self._run_young(found, signature, feeds, control)
            results = found.program.run(feeds, control)
            return results if found.rest is None else found.rest.go_on(results, control)
        if self._is_due(signature):
            return self._make(signature, feeds, control, may_compile=False)
        results = self._varying.run(feeds, control)
        if len(self._seen) == 1 and not self._programs and self._depth == 0:
            _give_back_freed_memory()
        return results

    def go_on(self, values: list[Array], control: RunControl) -> list[Array]:
        """Run a rest on what was computed before it."""
        signature = _signature(values)
        return execute(self.plan, values, control) if signature is None else self.run(signature, values, control)

    def report(self) -> list[ProgramRow]:
        rows = []
        for signature, kept in self._programs.items():
            program = kept.program
            counts = (program.layout_copies, kept.kept_bytes)
            rows.append(ProgramRow(signature, program.operators, program.bound_count, program.fused, *counts))
            rows.extend(() if kept.rest is None else kept.rest.report())
        return rows

    @property
    def is_settled(self) -> bool:
        programs = self._programs.values()
        return bool(programs) and all(kept.is_final and (kept.rest is None or kept.rest.is_settled) for kept in programs)

    def _is_due(self, signature: tuple[Any, ...]) -> bool:
        """Count a sighting; whether a program is to be made now."""
        count = self._seen.pop(signature, 0) + 1
        rare = len(self._seen) + sum(kept.runs < RUNS_THAT_PAY for kept in self._programs.values())
        needed = self._needed + (self._further_needed if self._programs else 0)
        if count >= max(needed, min(rare // SIGNATURES_PER_SIGHTING, RUNS_THAT_PAY)):
            return True
        self._seen[signature] = count
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return False

    def _run_young(self, kept: _Kept, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        if kept.seconds > SECONDS_BEFORE_COMPILING:
            return self._make(signature, feeds, control, may_compile=True)
        start = time.perf_counter()
        try:
            results = kept.program.run(feeds, control)
        finally:
            kept.seconds += time.perf_counter() - start
        return results if kept.rest is None else kept.rest.go_on(results, control)

    def _make(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool) -> list[Array]:
        results, kept = self._made(signature, feeds, control, may_compile=may_compile)
        if len(self._programs) == 1 and self._depth == 0:
            _give_back_freed_memory()
        return results if kept.rest is None else kept.rest.go_on(results, control)

    def _made(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool
    ) -> tuple[list[Array], _Kept]:
        """Results of a run that was recorded, and its program."""
        may_split = self._depth < MAX_SPLITS
        results, specialisation = specialise(self.plan, feeds, control, may_split=may_split)
        fused = fuse_steps(specialisation, self._providers, may_compile=may_compile)
        program = Program(specialisation, fused, bind_steps(fused.specialisation, self._providers, self._arenas[self._depth]))
        replaced = self._programs.pop(signature, None)
        kept = _Kept(program, specialisation.kept_bytes, is_final=may_compile or fused.is_complete)
        self._programs[signature] = kept
        self._needed = max(self._needed, 2)
        self._further_needed = specialisation.expanded_steps // STEPS_PER_SIGHTING
        if specialisation.rest is not None:
            kept.rest = self._rest(specialisation.rest, None if replaced is None else replaced.rest)
        self._kept_bytes += kept.kept_bytes - (0 if replaced is None else replaced.kept_bytes)
        while len(self._programs) > MAX_PROGRAMS or (self._kept_bytes > MAX_KEPT_BYTES and len(self._programs) > 1):
            self._drop_oldest()
        return results, kept

    def _rest(self, plan: ExecutionPlan, former: _ProgramSet | None) -> _ProgramSet:
        """Programs of a rest; those of the program that is replaced, if it ends there, too."""
        if former is not None and (former.plan.feeds, former.plan.steps) == (plan.feeds, plan.steps):
            return former
        return _ProgramSet(plan, self._providers, self._arenas, self._depth + 1)

    def _drop_oldest(self) -> None:
        """Drop the program that was not used for longest.

        If it did not pay, there are too many signatures to make programs for all: from now on only those that are seen twice as
        often get one, until programs pay again.
        """
        _, dropped = self._programs.popitem(last=False)
        self._kept_bytes -= dropped.kept_bytes
        self._needed = 2 * self._needed if dropped.runs < RUNS_THAT_PAY else max(2, self._needed // 2)
