"""The programs of a plan: made once an input signature is seen a second time, and kept while they pay."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass
from ort_sdk.memory import Arena
from ort_sdk.plan import ExecutionPlan

from . import plan_runner
from .executor import RunControl, execute
from .plan_runner import BindingProvider, ProgramRow, signature_of
from .varying import VaryingRuns

if TYPE_CHECKING:
    from .program import Program

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
MAX_SPLITS = 64
"""Parts into which a plan is split, at most, where shapes are known only when a step has run."""


def _give_back_freed_memory() -> None:
    """Let go of what runs step by step made, and of what packing left: programs use memory of their own."""
    from ort_sdk.loader.byte_source import give_back_pages
    from ort_sdk.memory.freed_memory import give_back_freed_memory

    give_back_freed_memory()
    give_back_pages()


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
    rest: ProgramSet | None = None
    """Programs of what is left to run on the program's fetches."""


class ProgramSet:
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
        signature = signature_of(values)
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
        if kept.seconds > plan_runner.SECONDS_BEFORE_COMPILING:
            return self._make(signature, feeds, control, may_compile=True)
        start = time.perf_counter()
        try:
            results = kept.program.run(feeds, control)
        finally:
            kept.seconds += time.perf_counter() - start
        return results if kept.rest is None else kept.rest.go_on(results, control)

    def _make(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool) -> list[Array]:
        results, kept = self._made(signature, feeds, control, may_compile=may_compile)
        if kept.rest is not None:
            results = kept.rest.go_on(results, control)
        if len(self._programs) == 1 and self._depth == 0:
            _give_back_freed_memory()
        return results

    def _made(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool
    ) -> tuple[list[Array], _Kept]:
        """Results of a run that was recorded, and its program."""
        from .binding import bind_steps
        from .fusing import fuse_steps
        from .program import Program
        from .specialise import specialise

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

    def _rest(self, plan: ExecutionPlan, former: ProgramSet | None) -> ProgramSet:
        """Programs of a rest; those of the program that is replaced, if it ends there, too."""
        if former is not None and (former.plan.feeds, former.plan.steps) == (plan.feeds, plan.steps):
            return former
        return ProgramSet(plan, self._providers, self._arenas, self._depth + 1)

    def _drop_oldest(self) -> None:
        """Drop the program that was not used for longest.

        If it did not pay, there are too many signatures to make programs for all: from now on only those that are seen twice as
        often get one, until programs pay again.
        """
        _, dropped = self._programs.popitem(last=False)
        self._kept_bytes -= dropped.kept_bytes
        self._needed = 2 * self._needed if dropped.runs < RUNS_THAT_PAY else max(2, self._needed // 2)
