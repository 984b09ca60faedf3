"""The cache of a plan's programs: traced when an input signature is seen a second time, and evicted when others save more."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Array
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.plan import ExecutionPlan
from ort_sdk.run import types
from ort_sdk.run.executor import RunControl, execute
from ort_sdk.run.types import BindingProvider, ProgramRow, Targets, signature_of

from .arenas import ProgramArenas, ProgramOutOfMemory
from .dynamic_shapes import DynamicKey, DynamicShapes, DynamicSignature
from .shape_generic import ShapeGenericRunner
from .subplans import continuation_plan

if TYPE_CHECKING:
    from .guards import Exited, Guard
    from .lowering.buffers import BoundSteps
    from .lowering.fusion import Fused
    from .program import Program
    from .specialisation import Specialisation

__all__ = ["ProgramCache"]

logger = logging.getLogger("ort_sdk.run")

MAX_PROGRAMS = 32
"""Programs of one cache; the least recently used is evicted."""
MAX_SEEN = 256
"""Signatures without a program that are remembered."""
SIGNATURES_PER_SIGHTING = 4
"""For so many signatures that were seen rarely so far, one has to be seen once more to get a program: where there are many,
most do not repeat often."""
RUNS_THAT_PAY = 32
"""Runs after which a program has saved about as much time as making it took."""
STEPS_PER_SIGHTING = 1 << 7
"""For so many unrolled steps, which take about as long to make as some runs, a further signature has to be seen once more to get
a program."""
MAX_KEPT_BYTES = 64 << 20
"""Folded values that the programs of one session may keep alive."""
MAX_REFUSED = 4
"""After so many sets of feeds with dynamic shapes whose program did not pay, none is made for further ones."""
FEWER_CALLS = 2
"""A program for dynamic shapes pays on a main graph if it makes so many times fewer calls than a shape-generic run: it is about
as fast as one for a single shape then. Bodies of loops run so often that any program pays."""
LEAST_STEPS = 16
"""Steps of a shape-generic run of a main graph from which a program for dynamic shapes may pay."""
MAX_CONTINUATIONS = 64
"""Nesting depth of continuations that have programs: how often one run may exit at guards."""


def _give_back_freed_memory() -> None:
    """Give back memory freed by runs step by step and by packing: programs use memory of their own."""
    from ort_sdk.formats.files.byte_source import give_back_pages
    from ort_sdk.memory.freed_memory import give_back_freed_memory

    give_back_freed_memory()
    give_back_pages()


def _give_back_periodically() -> None:
    from ort_sdk.memory.freed_memory import give_back_periodically

    give_back_periodically()


@dataclass(slots=True)
class _Entry:
    """A cached program."""

    program: Program
    kept_bytes: int
    is_final: bool
    """Whether it need not be made again when it has run for long enough that compiling pays."""
    seconds: float = 0.0
    """Time its runs took, until it is final."""
    attempts: int = 0
    """How often providers were asked in vain to compile for it; each time its runs have to take twice as long before the next."""
    runs: int = 0
    continuations: dict[int, _Continuation] = field(default_factory=dict)
    """Count of steps → continuation of the guard there, if a run exited at it."""
    is_outdated: bool = False
    """Whether most runs exited at guards that were expected to hold: it is traced once more."""

    def hottest_exit(self) -> _Continuation | None:
        """The continuation of the guard at which most runs exited, if most exit at guards that were expected to hold."""
        exits = [continuation for continuation in self.continuations.values() if not continuation.guard.always_exits]
        count = sum(continuation.runs for continuation in exits)
        return max(exits, key=lambda each: each.runs) if count >= RUNS_THAT_PAY and 2 * count > self.runs else None


@dataclass(slots=True)
class _Continuation:
    """What is left of a plan after a guard, with programs of its own."""

    guard: Guard
    programs: ProgramCache
    runs: int = 0


class ProgramCache:
    """Programs by signature, and the arena they share; used by one run at a time.

    Args:
        plan: what they are programs of.
        providers: provider name → what binding needs.
        arenas: of this plan's programs, of those of its continuations, and so on; shared by all of them, which run one at a time.
        depth: how many plans this one is a continuation of.
        may_be_dynamic: whether to make a program for dynamic shapes: all signatures that differ in the shapes of some feeds only.
        is_body: whether the plan is a body of a loop.
        is_repeated: whether one run may replay its programs several times; that of a body, or of a continuation in one.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        providers: Mapping[str, BindingProvider],
        arenas: list[ProgramArenas] | None = None,
        depth: int = 0,
        *,
        may_be_dynamic: bool = False,
        is_body: bool = False,
        is_repeated: bool = False,
    ) -> None:
        self.plan = plan
        self._providers = providers
        self.has_devices = any(not provider.device.is_cpu for provider in providers.values())
        """Whether programs may hold memory of other devices than the host."""
        self._arenas = [] if arenas is None else arenas
        self._depth = depth
        if len(self._arenas) == depth:
            self._arenas.append(ProgramArenas())
        self._programs: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self._seen: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        """How often a signature was seen since it had a program."""
        self._needed = 2
        """How often one has to be seen to get a program."""
        self._further_needed = 0
        """How much more often further signatures have to be seen, by what the last program took to make."""
        self._kept_bytes = 0
        self.has_changed = False
        """Whether the bytes it holds may have changed since the caller last looked."""
        self._shape_generic = ShapeGenericRunner(plan, providers)
        self._ends: set[int] = set()
        """Counts of steps after which shapes vary so much that programs end there."""
        self._is_body, self._is_repeated = is_body, is_repeated or is_body
        self._shapes_seen = DynamicShapes() if may_be_dynamic else None
        self._dynamic: DynamicSignature | None = None
        self._awaited: DynamicKey | None = None
        """Of which the next run makes a program."""
        self._refused: set[frozenset[int] | DynamicKey] = set()
        """Feeds, and signatures with dynamic shapes, whose program did not pay."""
        self._latest: tuple[Any, ...] | None = None
        self._repetitions = 0
        """How often the latest signature was repeated in a row."""

    def run(
        self,
        signature: tuple[Any, ...],
        feeds: Sequence[Array],
        control: RunControl,
        targets: Targets | None = None,
    ) -> list[Array]:
        """Run by the program of the signature, or of its dynamic shapes; else trace it if it is due, or run shape-generic.

        ``targets`` are for a program's results, see ``PlanRunner.run``.
        """
        found = self._programs.get(signature)
        if found is None and self._dynamic is not None:
            key = self._dynamic.key(signature)
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
                return self._run_until_final(found, signature, feeds, control)
            results = found.program.run(feeds, control, targets)
            return results if isinstance(results, list) else self._run_continuation(found, results, control)
        if self._is_due(signature):
            return self._make(signature, feeds, control, may_compile=False)
        if self._shapes_seen is not None:
            self._shapes_seen.see(signature)
            positions = self._shapes_seen.positions
            has_many_steps = self._is_body or self._shape_generic.step_count >= LEAST_STEPS
            if positions and has_many_steps and positions not in self._refused:
                return self._trace_dynamic(positions, signature, feeds, control)
        results = self._shape_generic.run(feeds, control)
        if self._depth == 0:
            if len(self._seen) == 1 and not self._programs:
                _give_back_freed_memory()
            else:
                _give_back_periodically()
        return results

    def held_bytes(self) -> int:
        """Bytes of the arenas on the host and devices, and of folded values, those of the continuations among them."""
        return sum(arena.nbytes for arena in self._arenas) + self._folded_bytes()

    def drop_device_memory(self) -> bool:
        """Drop all programs, if they hold memory of devices: they share it, so that to drop only some would free none.

        Their signatures have to be seen again as often as before.

        Returns:
            Whether there was any.
        """
        arenas = self._arenas[self._depth :]
        if not any(each.device_bytes for each in arenas):
            return False
        self._needed *= 2
        for signature in list(self._programs):
            self._drop(signature, self._needed // 2)
        for each in arenas:
            each.drop_device_blocks()
        return True

    def drop_outdated(self) -> None:
        """Drop programs whose memory on a device was replaced by a larger block; they are made anew when they are used again."""
        if not self.has_devices:
            return
        for signature, entry in list(self._programs.items()):
            if entry.program.is_outdated:
                self._drop(signature, self._needed - 1)
        for continuation in self._continuations():
            continuation.programs.drop_outdated()

    def _drop(self, signature: tuple[Any, ...], sightings: int) -> None:
        """Drop a program; its signature counts as seen so many times."""
        self._kept_bytes -= self._programs.pop(signature).kept_bytes
        self._seen[signature] = sightings

    def _folded_bytes(self) -> int:
        return self._kept_bytes + sum(continuation.programs._folded_bytes() for continuation in self._continuations())

    def _continuations(self) -> Iterator[_Continuation]:
        """Those of all programs."""
        return (continuation for entry in self._programs.values() for continuation in entry.continuations.values())

    def report(self) -> list[ProgramRow]:
        """A row for each program, followed by those of its continuations."""
        rows = []
        for signature, entry in self._programs.items():
            program = entry.program
            operators = (program.operators, program.bound_count, program.fused)
            counts = (program.layout_copies, entry.kept_bytes)
            rows.append(ProgramRow(signature, *operators, *counts, program.algorithms(), program.device_bytes))
            rows.extend(row for continuation in entry.continuations.values() for row in continuation.programs.report())
        return rows

    @property
    def varies(self) -> bool:
        """Whether it met more than one signature."""
        return len(self._programs) + len(self._seen) > 1

    @property
    def is_settled(self) -> bool:
        """Whether no program will be made again: each has run for long enough that providers compiled for it."""
        always = (continuation for continuation in self._continuations() if continuation.guard.always_exits)
        entries = self._programs.values()
        return bool(entries) and all(entry.is_final for entry in entries) and all(each.programs.is_settled for each in always)

    def _is_due(self, signature: tuple[Any, ...]) -> bool:
        """Count a sighting; whether a program is to be made now."""
        if signature == self._awaited:
            return True
        count = self._count(signature)
        rare = len(self._seen) - 1 + sum(entry.runs < RUNS_THAT_PAY for entry in self._programs.values())
        needed = self._needed + (self._further_needed if self._programs else 0)
        if count < max(needed, min(rare // SIGNATURES_PER_SIGHTING, RUNS_THAT_PAY)):
            return False
        del self._seen[signature]
        return True

    def _comes_again(self, signature: tuple[Any, ...]) -> bool:
        """Whether a signature that a program for dynamic shapes serves repeated so often that one of its own pays."""
        self._repetitions = self._repetitions + 1 if signature == self._latest else 0
        self._latest = signature
        return self._repetitions >= RUNS_THAT_PAY

    def _count(self, signature: tuple[Any, ...]) -> int:
        """Sightings of a signature that has no program, with this one."""
        count = self._seen[signature] = self._seen.pop(signature, 0) + 1
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return count

    def _trace_dynamic(
        self, positions: frozenset[int], signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl
    ) -> list[Array]:
        """Run, and make a program for all signatures of this kind in the next run."""
        from .tracing.tracer import trace_without_guards

        results, recorded = trace_without_guards(self.plan, feeds, control, providers=self._providers, may_expand=False)
        made = (index for step in self.plan.steps for index in step.outputs)
        shapes = {index: getattr(recorded.values[index], "shape", None) for index in made}
        self._dynamic, self._shapes_seen = DynamicSignature(positions, shapes), None
        self._awaited = self._dynamic.key(signature)
        return results

    def _run_until_final(
        self, entry: _Entry, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl
    ) -> list[Array]:
        may_compile = entry.seconds > types.SECONDS_BEFORE_COMPILING * 2**entry.attempts
        if may_compile or entry.is_outdated:
            return self._make(signature, feeds, control, may_compile=may_compile)
        start = time.perf_counter()
        try:
            results = entry.program.run(feeds, control)
        finally:
            entry.seconds += time.perf_counter() - start
        return results if isinstance(results, list) else self._run_continuation(entry, results, control)

    def _run_continuation(self, entry: _Entry, left: Exited, control: RunControl) -> list[Array]:
        """Run the continuation of a guard at which a program took the side exit."""
        guard = left.guard
        continuation = entry.continuations.get(guard.count)
        if continuation is None:
            continuation = entry.continuations[guard.count] = _Continuation(guard, self._continuation_cache(guard))
        continuation.runs += 1
        self.has_changed = True
        hottest = entry.hottest_exit()
        if hottest is not None:
            entry.is_outdated, entry.is_final = True, False
            if hottest.programs.varies:
                self._ends.add(hottest.guard.count)
        own = signature_of(left.values)
        programs = continuation.programs
        return execute(programs.plan, left.values, control) if own is None else programs.run(own, left.values, control)

    def _continuation_cache(self, guard: Guard) -> ProgramCache:
        plan = continuation_plan(self.plan, guard.count, guard.live, guard.known)
        return ProgramCache(plan, self._providers, self._arenas, self._depth + 1, is_repeated=self._is_repeated)

    def _make(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool) -> list[Array]:
        """Run, and make a program of the run."""
        made = self._made(signature, feeds, control, may_compile=may_compile)
        results = made if isinstance(made, list) else self._run_continuation(*made, control)
        if self._depth == 0:
            _give_back_freed_memory()
        self.has_changed = True
        return results

    def _made(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl, *, may_compile: bool
    ) -> list[Array] | tuple[_Entry, Exited]:
        """Results of a run that was traced, or its program and the side exit it took; the program is kept if it pays."""
        results, specialisation = self._traced(signature, feeds, control)
        specialisation.is_repeated = self._is_repeated
        if isinstance(signature, DynamicKey) and isinstance(results, list) and not self._may_pay(specialisation.unknown_steps):
            self._refuse(signature)
            return results
        program, is_complete = self._lowered(specialisation, may_compile=may_compile)
        replaced = self._programs.pop(signature, None)
        self._seen.pop(signature, None)
        entry = _Entry(program, specialisation.kept_bytes, is_final=is_complete)
        self._programs[signature] = entry
        self._further_needed = specialisation.expanded_steps // STEPS_PER_SIGHTING
        if replaced is not None:
            entry.attempts = replaced.attempts + may_compile
            entry.continuations = _valid_continuations(replaced.continuations, specialisation)
        self._kept_bytes += entry.kept_bytes - (0 if replaced is None else replaced.kept_bytes)
        while len(self._programs) > MAX_PROGRAMS or (self._kept_bytes > MAX_KEPT_BYTES and len(self._programs) > 1):
            self._evict()
        is_judged = entry.is_final or self._is_body
        if isinstance(signature, DynamicKey) and is_judged and not self._may_pay(program.launch_count):
            self._refuse(signature)
        return results if isinstance(results, list) else (entry, results)

    def _lowered(self, specialisation: Specialisation, *, may_compile: bool) -> tuple[Program, bool]:
        """The program, and whether it need not be made again: where a device has no memory left it gets no buffers for now."""
        from .lowering.buffers import BoundSteps
        from .lowering.fusion import Fused
        from .lowering.scheduling import with_host_steps_ahead
        from .program import Program

        fused = self._fused(specialisation, may_compile=may_compile)
        fused = replace(fused, specialisation=with_host_steps_ahead(fused.specialisation, self._providers))
        try:
            return Program(specialisation, fused, self._bound(fused)), fused.is_complete
        except ProgramOutOfMemory as error:
            logger.warning("runs of one signature go without fixed buffers: %s", error.text)
        return Program(specialisation, Fused(specialisation, (), is_complete=False), BoundSteps()), False

    def _bound(self, fused: Fused) -> BoundSteps:
        """The bound steps; where a device has no memory for one more program, the others go first."""
        from .lowering.binding import bind_steps

        arenas = self._arenas[self._depth]
        try:
            return bind_steps(fused.specialisation, self._providers, arenas)
        except ProgramOutOfMemory:
            if not self.drop_device_memory():
                raise
        return bind_steps(fused.specialisation, self._providers, arenas)

    def _fused(self, specialisation: Specialisation, *, may_compile: bool) -> Fused:
        """Steps fused where shapes are known and, in a program for dynamic shapes, where they vary, as in shape-generic runs."""
        from .lowering.fusion import Fused, fuse_steps

        fused = fuse_steps(specialisation, self._providers, may_compile=may_compile)
        if not specialisation.dynamic_feeds:
            return fused
        others = fuse_steps(fused.specialisation, self._providers, may_compile=may_compile, shapes_vary=True, is_program=True)
        return Fused(others.specialisation, fused.groups + others.groups, fused.is_complete and others.is_complete)

    def _traced(
        self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl
    ) -> tuple[list[Array] | Exited, Specialisation]:
        from .tracing.tracer import trace, trace_without_guards

        if self._depth >= MAX_CONTINUATIONS:
            return trace_without_guards(self.plan, feeds, control, providers=self._providers, may_expand=True)
        dynamic = self._dynamic if isinstance(signature, DynamicKey) else None
        return trace(self.plan, feeds, control, providers=self._providers, ends=self._ends, dynamic=dynamic)

    def _may_pay(self, calls: int) -> bool:
        """Whether a program for dynamic shapes makes so many fewer calls than a shape-generic run."""
        return (1 if self._is_body else FEWER_CALLS) * calls < self._shape_generic.step_count

    def _refuse(self, key: DynamicKey) -> None:
        """Drop a program for signatures of one kind, and make no more of them.

        If there are none of others, either, other feeds may be taken for dynamic.
        """
        refused = self._programs.pop(key, None)
        self._kept_bytes -= 0 if refused is None else refused.kept_bytes
        if len(self._refused) >= MAX_SEEN:
            self._refused.clear()
        if self._dynamic is None or any(isinstance(other, DynamicKey) for other in self._programs):
            self._refused.add(key)
            return
        self._refused.add(self._dynamic.positions)
        self._dynamic = self._awaited = None
        self._shapes_seen = DynamicShapes() if len(self._refused) < MAX_REFUSED else None

    def _evict(self) -> None:
        """Evict the least recently used program.

        If it did not pay, there are too many signatures to make programs for all: from now on only those that are seen twice as
        often get one, until programs pay again.
        """
        _, dropped = self._programs.popitem(last=False)
        self._kept_bytes -= dropped.kept_bytes
        self._needed = 2 * self._needed if dropped.runs < RUNS_THAT_PAY else max(2, self._needed // 2)


def _valid_continuations(continuations: Mapping[int, _Continuation], specialisation: Specialisation) -> dict[int, _Continuation]:
    """The continuations of a program that are those of the program that replaces it, too."""
    return {
        guard.count: _Continuation(guard, continuations[guard.count].programs)
        for guard in specialisation.guards
        if guard.count in continuations and continuations[guard.count].guard.has_same_continuation(guard)
    }
