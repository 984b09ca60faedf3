"""Compiled tasks behind a ``LayoutCall``: on arrays set by argument, with workspace of the thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.memory.workspace import Scratch, ToldMemory

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["TaskExecution"]


class TaskExecution:
    """Runs a task on arrays set before. For one thread at a time.

    Args:
        call: the task with all that does not change.
        places: argument → position of its address among the task's arguments; None: arguments are positions.
        scratch: gives working memory.
        work: where the task takes the address of working memory, and bytes of it; no bytes: nowhere.
    """

    def __init__(
        self, call: TaskCall, places: Mapping[int, int] | None, scratch: Scratch, work: tuple[int, int] = (0, 0)
    ) -> None:
        self._call, self._places = call, places
        self._work_place, work_bytes = work
        self._work = ToldMemory(scratch, "task", work_bytes) if work_bytes else None
        self._arrays: dict[int, HostArray] = {}

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory for an argument; it is kept alive."""
        if self._arrays.get(argument) is not array:
            self._arrays[argument] = array
            self._call.point(argument if self._places is None else self._places[argument], array)

    def forget(self, argument: int) -> None:
        """Keep an argument's array alive no longer; it must be set before the next call."""
        self._arrays.pop(argument, None)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        return NativeCall((self._call.row,), None if self._work is None else self._prepare)

    def __call__(self) -> None:
        """Run; outputs are written when it returns."""
        self._prepare()
        self._call.run()

    def _prepare(self) -> None:
        """Use the thread's working memory."""
        if self._work is not None:
            self._work.tell(self._call, self._work_place)
