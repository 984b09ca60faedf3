"""Guards: places behind which a program is right only if values have the shapes they had when it was made.

A shape that only a run knows, as that of NonZero, is most often the same in the next run. So a program is made as if it were,
and looks, once the step has run. Where the shape is another, the program ends, and what is left of the plan runs on what was
computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import CPU_DEVICE, HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import Step

from .slots import ValueSlot

__all__ = ["Guard", "Leaving", "Unfinished", "guard_step"]


@dataclass(frozen=True, slots=True)
class Guard:
    """One such place."""

    count: int
    """Steps of the plan that have run."""
    checked: tuple[int, ...]
    """The program's values whose shapes are looked at."""
    live: tuple[int, ...]
    """The plan's values that what is left reads, and that differ from run to run."""
    known: Mapping[int, Any]
    """Those that are the same whenever the program comes here."""
    is_end: bool
    """Whether the program ends here in any case."""

    def leaves_the_same(self, other: Guard) -> bool:
        """Whether what is left behind both is the same, of one plan."""
        return (self.count, self.live) == (other.count, other.live) and _are_equal(self.known, other.known)


class Unfinished(NamedTuple):
    """What a program gives instead of results where it ended at a guard."""

    guard: Guard
    values: list[Any]
    """The live ones. No program's memory is in them."""


class Leaving:
    """Ends a run of a program at a guard.

    Args:
        guard: the place.
        slots: of the program, to let go of the run's values.
        memory: that the program's next run writes to.
    """

    def __init__(self, guard: Guard, slots: Iterable[ValueSlot], memory: Sequence[HostArray]) -> None:
        self._guard = guard
        self._slots = [slot for slot in slots if not slot.is_fixed]
        self._memory = memory

    def __call__(self, values: list[Any]) -> Unfinished:
        for slot in self._slots:
            slot.array = None
        return Unfinished(self._guard, [self._owned(value) for value in values])

    def _owned(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and any(np.may_share_memory(value, memory) for memory in self._memory):
            return value.copy()
        return value


def guard_step(inputs: tuple[int, ...]) -> Step:
    """A guard as the step of a program that it is there: it reads what is live, and makes nothing."""
    return Step(None, inputs, (), (), None, "Guard", "", "", "", CPU_DEVICE)


def _are_equal(known: Mapping[int, Any], others: Mapping[int, Any]) -> bool:
    return known.keys() == others.keys() and all(
        value is others[index] or (isinstance(value, np.ndarray) and np.array_equal(value, others[index]))
        for index, value in known.items()
    )
