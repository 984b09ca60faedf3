"""What tasks that score rows have in common: plans by the rows' shape, and which output is written where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ort_sdk.api import HostArray

__all__ = ["PlansByShape", "places_of_outputs"]

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


def places_of_outputs(count: int, *, classifies: bool) -> tuple[int | None, ...]:
    """Arrays of a node by position, in the order of a task's first arguments: rows, scores and labels.

    Args:
        count: outputs that are written; a classifier's first are the labels.
        classifies: whether there are labels.
    """
    return (0, 2 if count > 1 else None, 1) if classifies else (0, 1, None)
