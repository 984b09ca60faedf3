"""The programs of a plan: made once an input signature is seen a second time, and kept while they pay."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.memory import Arena
from ort_sdk.plan import ExecutionPlan

from . import plan_runner
from .changing_feeds import ChangingFeeds, OpenKey, OpenSignature
from .derived_plans import rest_plan
from .executor import RunControl, execute
from .plan_runner import BindingProvider, ProgramRow, signature_of
from .varying import VaryingRuns

if TYPE_CHECKING:
    from .fusing import Fused
    from .guards import Guard, Unfinished
    from .program import Program
    from .specialise import Specialisation

__all__ = ["ProgramSet"]

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
MAX_REFUSED = 4
"""Sets of feeds of any shape for which a program was not worth it, after which none is made for others."""
FEWER_CALLS = 2
"""A program for feeds of any shape is worth making on a main graph if it makes so many times fewer calls than a run without: it
is about as fast as one for a single shape then. Bodies of loops run so often that any is."""
LEAST_STEPS = 16
"""Steps of a run of a main graph without a program, fused as they are, from which one for feeds of any shape may pay."""
MAX_RESTS = 64
"""Plans, each a rest of the one before, that have programs: how often one run may come upon shapes that it alone knows."""


def _give_back_freed_memory() -> None:
    """Let go of what runs step by step made, and of what packing left: programs use memory of their own."""
    from ort_sdk.loader.byte_source import give_back_pages
    from ort_sdk.memory.freed_memory import give_back_freed_memory

    give_back_freed_memory()
    give_back_pages()


def _give_back_now_and_then() -> None:
    from ort_sdk.memory.freed_memory import give_back_now_and_then

    give_back_now_and_then()


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
    rests: dict[int, _Rest] = field(default_factory=dict)
    """Count of steps → what is left behind a guard there, if a run ended at it."""
    is_outdated: bool = False
    """Whether most runs ended at guards that were to be passed."""

    def often_left(self) -> _Rest | None:
        """The rest of the guard at which most runs ended, if it is most runs that ended at one that was to be passed."""
        rests = [rest for rest in self.rests.values() if not rest.guard.is_end]
        left = sum(rest.runs for rest in rests)
        return max(rests, key=lambda rest: rest.runs) if left >= RUNS_THAT_PAY and 2 * left > self.runs else None


@dataclass(slots=True)
class _Rest:
    """What is left of a plan behind a guard."""

    guard: Guard
    programs: ProgramSet
    runs: int = 0


class ProgramSet:
    """Programs by signature, and the arena they share; used by one run at a time.

    Args:
        plan: what they are programs of.
        providers: provider name → what binding needs.
        arenas: of this plan's programs, of those of its rests, and so on; shared by all rests, which run one at a time.
        depth: how many plans this one is a rest of.
        may_open: whether to make a program for all signatures that differ in the shapes of some feeds only.
        is_body: whether the plan is a body of a loop.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        providers: Mapping[str, BindingProvider],
        arenas: list[Arena] | None = None,
        depth: int = 0,
        *,
        may_open: bool = False,
        is_body: bool = False,
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
        self._needed = 2
        """How often one has to be seen to get a program."""
        self._further_needed = 0
        """How much more often signatures behind the first have to be, by what the last program took to make."""
        self._kept_bytes = 0
        self.has_changed = False
        """Whether it may hold another number of bytes than when the caller looked last."""
        self._varying = VaryingRuns(plan, providers)
        self._ends: set[int] = set()
        """Counts of steps behind which shapes vary so much that programs end there."""
        self._is_body = is_body
        self._changing = ChangingFeeds() if may_open else None
        self._open: OpenSignature | None = None
        self._awaited: OpenKey | None = None
        """Of which the next run makes a program."""
        self._refused: set[frozenset[int] | OpenKey] = set()
        """Feeds, and signatures with feeds of any shape, for which a program was not worth it."""
        self._latest: tuple[Any, ...] | None = None
        self._repetitions = 0
        """How often the latest signature came again at once."""

    def run(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        found = self._programs.get(signature)
        if found is None and self._open is not None:
            key = self._open.key(signature)
            found = self._programs.get(key)
            if found is not None and self._comes_again(signature):
                found = None
            elif key not in self._refused:
                if key == self._awaited and found is None:
                    self._count(signature)
                signature = key
        if found is not None:
            self._programs.move_to_end(signature)
            found.runs += 1
            if not found.is_final:
                return self._run_young(found, signature, feeds, control)
            results = found.program.run(feeds, control)
            return results if isinstance(results, list) else self._run_rest(found, results, control)
        if self._is_due(signature):
            return self._make(signature, feeds, control, may_compile=False)
        if self._changing is not None:
            self._changing.see(signature)
            positions = self._changing.positions
            has_many_steps = self._is_body or self._varying.step_count >= LEAST_STEPS
            if positions and has_many_steps and positions not in self._refused:
                return self._opened(positions, signature, feeds, control)
        results = self._varying.run(feeds, control)
        if self._depth == 0:
            if len(self._seen) == 1 and not self._programs:
                _give_back_freed_memory()
            else:
                _give_back_now_and_then()
        return results

    def held_bytes(self) -> int:
        """Bytes of the arenas, and of folded values, those of the rests among them."""
        return sum(arena.nbytes for arena in self._arenas) + self._folded_bytes()

    def _folded_bytes(self) -> int:
        rests = [rest.programs for kept in self._programs.values() for rest in kept.rests.values()]
        return self._kept_bytes + sum(programs._folded_bytes() for programs in rests)

    def report(self) -> list[ProgramRow]:
        rows = []
        for signature, kept in self._programs.items():
            program = kept.program
            counts = (program.layout_copies, kept.kept_bytes)
            rows.append(ProgramRow(signature, program.operators, program.bound_count, program.fused, *counts))
            rows.extend(row for rest in kept.rests.values() for row in rest.programs.report())
        return rows

    @property
    def varies(self) -> bool:
        """Whether it met more than one signature."""
        return len(self._programs) + len(self._seen) > 1

    @property
    def is_settled(self) -> bool:
        programs = self._programs.values()
        rests = [rest.programs for kept in programs for rest in kept.rests.values() if rest.guard.is_end]
        return bool(programs) and all(kept.is_final for kept in programs) and all(rest.is_settled for rest in rests)

    def _is_due(self, signature: tuple[Any, ...]) -> bool:
        """Count a sighting; whether a program is to be made now."""
        if signature == self._awaited:
            return True
        count = self._count(signature)
        rare = len(self._seen) - 1 + sum(kept.runs < RUNS_THAT_PAY for kept in self._programs.values())
        needed = self._needed + (self._further_needed if self._programs else 0)
        if count < max(needed, min(rare // SIGNATURES_PER_SIGHTING, RUNS_THAT_PAY)):
            return False
        del self._seen[signature]
        return True

    def _comes_again(self, signature: tuple[Any, ...]) -> bool:
        """Whether a signature that a program for many serves came so often without another that one of its own pays."""
        self._repetitions = self._repetitions + 1 if signature == self._latest else 0
        self._latest = signature
        return self._repetitions >= RUNS_THAT_PAY

    def _count(self, signature: tuple[Any, ...]) -> int:
        """Sightings of a signature that has no program, with this one."""
        count = self._seen[signature] = self._seen.pop(signature, 0) + 1
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return count

    def _opened(
        self, positions: frozenset[int], signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl
    ) -> list[Array]:
        """Run, and have the next run make a program for all signatures of this kind."""
        from .specialise import specialise_without_guards

        results, recorded = specialise_without_guards(self.plan, feeds, control, may_expand=False)
        made = (index for step in self.plan.steps for index in step.outputs)
        shapes = {index: getattr(recorded.values[index], "shape", None) for index in made}
        self._open, self._changing = OpenSignature(positions, shapes), None
        self._awaited = self._open.key(signature)
        return results

    def _run_young(self, kept: _Kept, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        may_compile = kept.seconds > plan_runner.SECONDS_BEFORE_COMPILING
        if may_compile or kept.is_outdated:
            return self._make(signature, feeds, control, may_compile=may_compile)
        start = time.perf_counter()
        try:
            results = kept.program.run(feeds, control)
        finally:
            kept.seconds += time.perf_counter() - start
        return results if isinstance(results, list) else self._run_rest(kept, results, control)

    def _run_rest(self, kept: _Kept, left: Unfinished, control: RunControl) -> list[Array]:
        """Run what is left behind a guard at which a program ended."""
        guard = left.guard
        rest = kept.rests.get(guard.count)
        if rest is None:
            rest = kept.rests[guard.count] = _Rest(guard, self._programs_of(guard))
        rest.runs += 1
        self.has_changed = True
        often_left = kept.often_left()
        if often_left is not None:
            kept.is_outdated, kept.is_final = True, False
            if often_left.programs.varies:
                self._ends.add(often_left.guard.count)
        own = signature_of(left.values)
        return execute(rest.programs.plan, left.values, control) if own is None else rest.programs.run(own, left.values, control)

    def _programs_of(self, guard: Guard) -> ProgramSet:
        plan = rest_plan(self.plan, guard.count, guard.live, guard.known)
        return ProgramSet(plan, self._providers, self._arenas, self._depth + 1)

    def _make(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool) -> list[Array]:
        made = self._made(signature, feeds, control, may_compile=may_compile)
        results = made if isinstance(made, list) else self._run_rest(*made, control)
        if self._depth == 0:
            _give_back_freed_memory()
        self.has_changed = True
        return results

    def _made(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool
    ) -> list[Array] | tuple[_Kept, Unfinished]:
        """Results of a run that was recorded, or its program and what it ended with; the program is kept if it is worth it."""
        from .binding import bind_steps
        from .program import Program

        results, specialisation = self._specialised(signature, feeds, control)
        if isinstance(signature, OpenKey) and isinstance(results, list) and not self._may_pay(specialisation.unknown_steps):
            self._refuse(signature)
            return results
        fused = self._fused(specialisation, may_compile=may_compile)
        program = Program(specialisation, fused, bind_steps(fused.specialisation, self._providers, self._arenas[self._depth]))
        replaced = self._programs.pop(signature, None)
        kept = _Kept(program, specialisation.kept_bytes, is_final=may_compile or fused.is_complete)
        self._programs[signature] = kept
        self._further_needed = specialisation.expanded_steps // STEPS_PER_SIGHTING
        if replaced is not None:
            kept.rests = _still_fitting(replaced.rests, specialisation)
        self._kept_bytes += kept.kept_bytes - (0 if replaced is None else replaced.kept_bytes)
        while len(self._programs) > MAX_PROGRAMS or (self._kept_bytes > MAX_KEPT_BYTES and len(self._programs) > 1):
            self._drop_oldest()
        is_judged = kept.is_final or self._is_body
        if isinstance(signature, OpenKey) and is_judged and not self._may_pay(program.launch_count):
            self._refuse(signature)
        return results if isinstance(results, list) else (kept, results)

    def _fused(self, specialisation: Specialisation, *, may_compile: bool) -> Fused:
        """Steps fused where shapes are known and, in a program for feeds of any shape, where they vary, as in runs without."""
        from .fusing import Fused, fuse_steps

        fused = fuse_steps(specialisation, self._providers, may_compile=may_compile)
        if not specialisation.open_feeds:
            return fused
        others = fuse_steps(fused.specialisation, self._providers, may_compile=may_compile, shapes_vary=True, is_program=True)
        return Fused(others.specialisation, fused.groups + others.groups, fused.is_complete and others.is_complete)

    def _specialised(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl
    ) -> tuple[list[Array] | Unfinished, Specialisation]:
        from .specialise import specialise, specialise_without_guards

        if self._depth >= MAX_RESTS:
            return specialise_without_guards(self.plan, feeds, control, may_expand=True)
        opened = self._open if isinstance(signature, OpenKey) else None
        return specialise(self.plan, feeds, control, ends=self._ends, opened=opened)

    def _may_pay(self, calls: int) -> bool:
        """Whether a program for feeds of any shape makes so many fewer calls than a run by steps fused for such shapes."""
        return (1 if self._is_body else FEWER_CALLS) * calls < self._varying.step_count

    def _refuse(self, key: OpenKey) -> None:
        """Drop a program for signatures of one kind, and make no more of them.

        If there are none of others, either, other feeds may be given any shape.
        """
        refused = self._programs.pop(key, None)
        self._kept_bytes -= 0 if refused is None else refused.kept_bytes
        if len(self._refused) >= MAX_SEEN:
            self._refused.clear()
        if self._open is None or any(isinstance(other, OpenKey) for other in self._programs):
            self._refused.add(key)
            return
        self._refused.add(self._open.positions)
        self._open = self._awaited = None
        self._changing = ChangingFeeds() if len(self._refused) < MAX_REFUSED else None

    def _drop_oldest(self) -> None:
        """Drop the program that was not used for longest.

        If it did not pay, there are too many signatures to make programs for all: from now on only those that are seen twice as
        often get one, until programs pay again.
        """
        _, dropped = self._programs.popitem(last=False)
        self._kept_bytes -= dropped.kept_bytes
        self._needed = 2 * self._needed if dropped.runs < RUNS_THAT_PAY else max(2, self._needed // 2)


def _still_fitting(rests: Mapping[int, _Rest], specialisation: Specialisation) -> dict[int, _Rest]:
    """The rests of a program that are left behind the guards of the one in its place, too."""
    return {
        guard.count: _Rest(guard, rests[guard.count].programs)
        for guard in specialisation.guards
        if guard.count in rests and rests[guard.count].guard.leaves_the_same(guard)
    }
