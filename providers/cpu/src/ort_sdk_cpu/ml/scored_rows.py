"""What tasks that score rows have in common: plans by the rows' shape, and which output is written where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.arguments import Operand

__all__ = ["PlansByShape", "operands_of_outputs"]

SHAPES = 16
"""Shapes of rows whose plans are kept."""

Plan = TypeVar("Plan")


class PlansByShape(dict[tuple[int, ...], Plan]):
    """Shape of rows → what a call on them is made of.

    Args:
        takes: whether rows are any that a plan can be made for.
        make: makes it.
    """

    def __init__(self, takes: Callable[[HostArray], bool], make: Callable[[HostArray], Plan]) -> None:
        super().__init__()
        self._takes, self._make = takes, make

    def made_for(self, x: HostArray) -> Plan | None:
        """A new plan for rows of this shape; None for rows that are not taken."""
        if not self._takes(x):
            return None
        if len(self) >= SHAPES:
            self.clear()
        plan = self[x.shape] = self._make(x)
        return plan


def operands_of_outputs(count: int, *, classifies: bool) -> tuple[int, int]:
    """Scores and labels among a writer's arrays; 0 for those that are not written.

    Args:
        count: outputs that are written; a classifier's first are the labels.
        classifies: whether there are labels.
    """
    return (Operand(2) if count > 1 else 0, Operand(1)) if classifies else (Operand(1), 0)
