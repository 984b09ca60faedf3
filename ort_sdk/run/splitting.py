"""Splitting a plan where a shape is known only when its step has run, so that the steps after it get programs of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array
from ort_sdk.api.data_classes import dataclass
from ort_sdk.plan import ABSENT, Constants, ExecutionPlan, Feed, Fetch

__all__ = ["MIN_REST_STEPS", "SplitPlan", "body_as_main", "last_readers", "split_plan"]

MIN_REST_STEPS = 4
"""Steps after a split from which it pays: values that cross it are allocated anew in each run."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A plan in two parts."""

    head: ExecutionPlan
    """Its fetches are the values the rest reads."""
    rest: ExecutionPlan
    """Its feeds are those values; what the signature of the whole plan tells is constant in it."""


class _KnownConstants(Constants):
    """Constants of a plan, and values that are the same whenever its rest runs.

    Args:
        constants: of the whole plan.
        known: value index → value.
    """

    __slots__ = ("_all", "_base", "_known")

    def __init__(self, constants: Constants, known: Mapping[int, Array]) -> None:
        self._base = constants
        self._known = known
        self._all: dict[int, Array] | None = None
        self._frame: list[Any] = []

    def __contains__(self, index: object) -> bool:
        return index in self._known or index in self._base

    def __iter__(self) -> Iterator[int]:
        return iter({*self._base, *self._known})

    def __len__(self) -> int:
        return len({*self._base, *self._known})

    def arrays(self) -> dict[int, Array]:
        """Value index → array."""
        if self._all is None:
            self._all = {**self._base.arrays(), **self._known}
        return self._all


def last_readers(plan: ExecutionPlan) -> dict[int, int]:
    """Value → position of the last step that reads it; behind the last for what the plan fetches."""
    last = {index: position for position, step in enumerate(plan.steps) for index in step.inputs}
    last.update(dict.fromkeys((fetch.index for fetch in plan.fetches), len(plan.steps)))
    last.pop(ABSENT, None)
    return last


def split_plan(plan: ExecutionPlan, count: int, live: Sequence[int], known: Mapping[int, Any]) -> SplitPlan:
    """Split a plan behind its first ``count`` steps.

    Args:
        plan: what to split.
        count: steps of the head.
        live: values of the head, or feeds, that the rest reads.
        known: values that the rest reads and that are the same in every run of the head's signature.
    """
    names = plan.value_names
    device_of = {index: step.device for step in plan.steps[:count] for index in step.outputs}
    device_of.update({feed.index: feed.device for feed in plan.feeds})
    fetches = tuple(Fetch(names[index], index, device_of[index], None, None, is_owned=True) for index in live)
    feeds = tuple(Feed(names[index], index, device_of[index], None, None, has_default=False) for index in live)
    head = replace(plan, fetches=fetches, steps=plan.steps[:count])
    rest = replace(plan, feeds=feeds, constants=_KnownConstants(plan.constants, known), captures=(), steps=plan.steps[count:])
    return SplitPlan(head, rest)


def body_as_main(plan: ExecutionPlan) -> ExecutionPlan:
    """A body's plan as one of a main graph: what it captures is fed behind its inputs."""
    names, devices = plan.value_names, {index: step.device for step in plan.steps for index in step.inputs}
    captured = tuple(
        Feed(names[index], index, devices.get(index, CPU_DEVICE), None, None, has_default=False) for _, index in plan.captures
    )
    return replace(plan, feeds=(*plan.feeds, *captured), captures=())
