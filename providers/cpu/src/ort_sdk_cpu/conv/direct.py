"""Convolutions' tasks called straight on a run's arrays: for shapes that were never seen before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ort_sdk.api import HostArray

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall
    from ort_sdk_cpu.memory.workspace import Scratch

__all__ = ["DESTINATION", "WORK", "TaskPlan", "as_channels_last", "kept", "lies_channels_last"]

Made = TypeVar("Made")
DESTINATION, WORK = 4, 5
"""Where all tasks take the address of the output, and that of working memory."""
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


def kept(table: dict[Any, Made], key: Any, make: Callable[[], Made], most: int = KEPT_SHAPES) -> Made:
    """What was made for a shape; made now, and entered in place of the oldest where there are ``most``, if it is not there."""
    try:
        return table[key]
    except KeyError:
        while len(table) >= most:
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

    @property
    def kinds(self) -> str:
        """Of its arguments, as ``TaskFunction`` takes them: the same for all sizes."""
        found = _kinds.get((self.module, self.name))
        if found is None:
            found = "".join("f" if isinstance(argument, float) else "q" for argument in self.arguments)
            _kinds[self.module, self.name] = found
        return found

    def call(self) -> TaskCall:
        """The task on arrays that stay."""
        from ort_sdk_cpu.jit.task import TaskCall

        return TaskCall(self.module, self.name, self.arguments, self.threads)

    def run(self, arrays: Sequence[tuple[int, HostArray | None]], scratch: Scratch) -> None:
        """Run once.

        Args:
            arrays: place of an argument, and the array there, which has to lie as the task wants it; None for address 0. Places
                that are not named have address 0, too.
            scratch: working memory.
        """
        words: list[Any] = list(self.arguments)
        for place, array in arrays:
            words[place] = array
        if self.work_bytes:
            words[WORK] = scratch.room("task", self.work_bytes)
        from ort_sdk_cpu.jit.task import task_function

        task_function(self.module, self.name, self.kinds)(self.threads, *words)


_kinds: dict[tuple[str, str], str] = {}
