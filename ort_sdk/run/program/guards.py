"""Guards and side exits: a program is valid after a guard only if a check holds, of values' shapes or of a number.

A shape that only a run knows, as that of NonZero, is mostly the same in the next run. So a program is specialised for that
shape, and checks it once the step has run. Where the check fails, the program takes a side exit: the rest of the plan, its
continuation, runs on the values that are live there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import CPU_DEVICE, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import Step

from .slots import ValueSlot

__all__ = ["BoundedNumber", "Exited", "Guard", "SideExit", "guard_step"]


class BoundedNumber(NamedTuple):
    """A value of one element on the host, and what it may be; see ``OpKernel.bounded_input``."""

    value: int
    """Of the program."""
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Guard:
    """A check of shapes or of a number, and what is live there."""

    count: int
    """Steps of the plan that have run."""
    checked: tuple[int, ...]
    """The program's values whose shapes are checked."""
    live: tuple[int, ...]
    """The plan's values that the continuation reads, and that differ from run to run."""
    known: Mapping[int, Any]
    """Those that are the same whenever the program gets here."""
    always_exits: bool
    """Whether the program exits here in any case."""
    bounded: BoundedNumber | None = None
    """Number that is checked."""

    def has_same_continuation(self, other: Guard) -> bool:
        """Whether the continuations of both are the same, of one plan."""
        return (self.count, self.live) == (other.count, other.live) and _are_equal(self.known, other.known)


class Exited(NamedTuple):
    """What a program gives instead of results where it took a side exit."""

    guard: Guard
    values: list[Any]
    """The live ones. No program's memory is in them."""


class SideExit:
    """Leaves a program at a guard, with what is live there.

    Args:
        guard: the guard.
        slots: of the program, to clear the run's values.
        memory: that the program's next run writes to.
    """

    def __init__(self, guard: Guard, slots: Iterable[ValueSlot], memory: Sequence[HostArray]) -> None:
        self._guard = guard
        self._slots = [slot for slot in slots if not slot.is_fixed]
        self._memory = memory

    def __call__(self, values: list[Any]) -> Exited:
        for slot in self._slots:
            slot.array = None
        return Exited(self._guard, [self._owned(value) for value in values])

    def _owned(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and any(np.may_share_memory(value, memory) for memory in self._memory):
            return value.copy()
        return value


def guard_step(inputs: tuple[int, ...]) -> Step:
    """A guard as a step of a program: it reads what is live, and makes nothing."""
    return Step(None, inputs, (), (), None, "Guard", "", "", "", CPU_DEVICE)


def _are_equal(known: Mapping[int, Any], others: Mapping[int, Any]) -> bool:
    return known.keys() == others.keys() and all(
        value is others[index] or (isinstance(value, np.ndarray) and np.array_equal(value, others[index]))
        for index, value in known.items()
    )
