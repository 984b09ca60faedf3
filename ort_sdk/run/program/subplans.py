"""Plans made of others: the continuation of a guard, and a body as a main plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array, OrtDevice
from ort_sdk.memory import DeviceCopy
from ort_sdk.plan import Constants, ExecutionPlan, Feed, Step

__all__ = ["body_as_main", "continuation_plan"]


class _KnownConstants(Constants):
    """Constants of a plan, and values that are the same whenever its continuation runs.

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


def continuation_plan(plan: ExecutionPlan, count: int, live: Sequence[int], known: Mapping[int, Any]) -> ExecutionPlan:
    """The continuation of a plan after its first ``count`` steps.

    Args:
        plan: the whole.
        count: steps that have run.
        live: values they made, or feeds, that the continuation reads: its feeds.
        known: values that it reads and that are the same in every run of it.
    """
    names = plan.value_names
    device_of = {index: step.device for step in plan.steps[:count] for index in step.outputs}
    device_of.update({feed.index: feed.device for feed in plan.feeds})
    feeds = tuple(Feed(names[index], index, device_of[index], None, None, has_default=False) for index in live)
    return replace(plan, feeds=feeds, constants=_KnownConstants(plan.constants, known), captures=(), steps=plan.steps[count:])


def body_as_main(plan: ExecutionPlan) -> ExecutionPlan:
    """A body's plan as one of a main graph: what it captures is fed after its inputs."""
    names, devices = plan.value_names, {index: _device_of_inputs(step) for step in plan.steps for index in step.inputs}
    captured = tuple(
        Feed(names[index], index, devices.get(index, CPU_DEVICE), None, None, has_default=False) for _, index in plan.captures
    )
    return replace(plan, feeds=(*plan.feeds, *captured), captures=())


def _device_of_inputs(step: Step) -> OrtDevice:
    """Where a step reads values, unless the kernel reads them on the host."""
    return step.kernel.source if isinstance(step.kernel, DeviceCopy) else step.device
