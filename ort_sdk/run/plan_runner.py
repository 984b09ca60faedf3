"""Running a plan again and again: step by step, or by a program once an input signature is seen a second time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ort_sdk.api import Array
from ort_sdk.memory import Arena
from ort_sdk.plan import ExecutionPlan

from .binding import BindingProvider, bind_steps
from .executor import RunControl, execute
from .program import Program
from .specialise import specialise

__all__ = ["PlanRunner", "ProgramRow"]

MAX_PROGRAMS = 32
MAX_SEEN = 256
MAX_KEPT_BYTES = 64 << 20
"""Folded values that the programs of one session may keep alive."""


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """One program, for listings."""

    signature: tuple[tuple[tuple[int, ...], Any] | None, ...]
    """(shape, dtype) of each feed; None for one left at its default."""
    operators: tuple[str, ...]
    """Operators still run, in order: the others follow from the signature."""
    bound_count: int
    """How many of them run on buffers of their own."""
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


def _signature(feeds: Sequence[Array]) -> tuple[Any, ...] | None:
    """Shapes and types of the feeds; None if one is no tensor."""
    try:
        return tuple([None if value is None else (value.shape, value.dtype) for value in feeds])
    except AttributeError:
        return None


class _ProgramSet:
    """Programs by signature, and the arena they share; used by one run at a time."""

    def __init__(self, plan: ExecutionPlan, providers: Mapping[str, BindingProvider]) -> None:
        self._plan = plan
        self._providers = providers
        self._arena = Arena()
        self._programs: OrderedDict[tuple[Any, ...], tuple[Program, int]] = OrderedDict()
        self._seen: OrderedDict[tuple[Any, ...], None] = OrderedDict()
        self._kept_bytes = 0

    def run(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        found = self._programs.get(signature)
        if found is not None:
            self._programs.move_to_end(signature)
            return found[0].run(feeds, control)
        if signature in self._seen:
            return self._specialise(signature, feeds, control)
        self._seen[signature] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return execute(self._plan, feeds, control)

    def report(self) -> list[ProgramRow]:
        return [
            ProgramRow(signature, program.operators, program.bound_count, kept_bytes)
            for signature, (program, kept_bytes) in self._programs.items()
        ]

    def _specialise(self, signature: tuple[Any, ...], feeds: Sequence[Array], control: RunControl) -> list[Array]:
        results, specialisation = specialise(self._plan, feeds, control)
        program = Program(specialisation, bind_steps(specialisation, self._providers, self._arena))
        self._programs[signature] = (program, specialisation.kept_bytes)
        self._kept_bytes += specialisation.kept_bytes
        while len(self._programs) > MAX_PROGRAMS or (self._kept_bytes > MAX_KEPT_BYTES and len(self._programs) > 1):
            _, (_, freed) = self._programs.popitem(last=False)
            self._kept_bytes -= freed
        return results
