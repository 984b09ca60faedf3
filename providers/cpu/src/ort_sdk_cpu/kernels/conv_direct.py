"""Convolutions' tasks called straight on a run's arrays: for shapes that were never seen before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.addresses import address_of

if TYPE_CHECKING:
    from ort_sdk_cpu.machine_code import TaskCall, TaskFunction

    from .scratch import Scratch

__all__ = ["TaskPlan", "as_channels_last", "kept", "lies_channels_last"]

Made = TypeVar("Made")
KEPT_SHAPES = 64
"""For which a convolution keeps the sizes of its task."""
_FLOAT = np.dtype(np.float32)
_TO_LAST = {rank: (0, *range(2, rank), 1) for rank in range(3, 6)}


def lies_channels_last(array: HostArray) -> bool:
    """Whether (N, C, *spatial) lies in memory as (N, *spatial, C)."""
    return array.transpose(_TO_LAST[array.ndim]).flags.c_contiguous


def as_channels_last(array: HostArray) -> HostArray:
    """(N, C, *spatial) that lies in memory as (N, *spatial, C): the array or a copy."""
    if lies_channels_last(array):
        return array
    rank = array.ndim
    return np.array(array.transpose(0, *range(2, rank), 1), _FLOAT, order="C").transpose(0, rank - 1, *range(1, rank - 1))


def kept(table: dict[Any, Made], key: Any, make: Callable[[], Made]) -> Made:
    """What was made for a shape; made now, and entered in place of the oldest where there are many, if it is not there."""
    try:
        return table[key]
    except KeyError:
        while len(table) >= KEPT_SHAPES:
            table.pop(next(iter(table)), None)
        made = table[key] = make()
        return made


class TaskPlan(NamedTuple):
    """A task with its sizes, but for the arrays of a call."""

    module: str
    name: str
    arguments: tuple[int | float, ...]
    threads: int
    work_bytes: int
    """Working memory of all threads."""

    def call(self) -> TaskCall:
        """The task on arrays that stay."""
        from ort_sdk_cpu.machine_code import TaskCall

        return TaskCall(self.module, self.name, self.arguments, self.threads)

    def run(self, arrays: Sequence[tuple[int, HostArray | None]], work_place: int, scratch: Scratch) -> None:
        """Run once.

        Args:
            arrays: place of an argument, and the array there, which has to lie as the task wants it; None for address 0. Places
                that are not named have address 0, too.
            work_place: where the task takes the address of working memory.
            scratch: working memory.
        """
        words = list(self.arguments)
        for place, array in arrays:
            if array is not None:
                words[place] = address_of(array)
        if self.work_bytes:
            words[work_place] = scratch.address("task", self.work_bytes)
        _function(self)(self.threads, *words)


def _function(plan: TaskPlan) -> TaskFunction:
    """A plan's task as a function: which of its arguments are floats is the same for all sizes."""
    found = _functions.get((plan.module, plan.name))
    if found is None:
        from ort_sdk_cpu.machine_code import task_function

        kinds = "".join("f" if isinstance(argument, float) else "q" for argument in plan.arguments)
        found = _functions[plan.module, plan.name] = task_function(plan.module, plan.name, kinds)
    return found


_functions: dict[tuple[str, str], TaskFunction] = {}
