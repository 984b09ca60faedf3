"""Compiled tasks in the place of oneDNN's primitives: on arrays set by argument, with working memory of the thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray

from .scratch import Scratch

if TYPE_CHECKING:
    from ort_sdk_cpu.machine_code import TaskCall

__all__ = ["TaskExecution"]

_BYTES = np.dtype(np.uint8)


class TaskExecution:
    """Runs a task on arrays set before. For one thread at a time.

    Args:
        call: the task with all that does not change.
        places: argument → where the task takes its address.
        scratch: gives working memory.
        work: where the task takes the address of working memory, and bytes of it; no bytes: nowhere.
    """

    def __init__(self, call: TaskCall, places: Mapping[int, int], scratch: Scratch, work: tuple[int, int] = (0, 0)) -> None:
        self._call, self._places, self._scratch = call, places, scratch
        self._work_place, self._work_bytes = work
        self._arrays: dict[int, HostArray] = {}

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory for an argument; it is kept alive."""
        if self._arrays.get(argument) is not array:
            self._arrays[argument] = array
            self._call.point(self._places[argument], array)

    def forget(self, argument: int) -> None:
        """Keep an argument's array alive no longer; it must be set before the next call."""
        self._arrays.pop(argument, None)

    def __call__(self) -> None:
        """Run; outputs are written when it returns."""
        if self._work_bytes:
            self._call.point(self._work_place, self._scratch.array("task", (self._work_bytes,), _BYTES))
        self._call.run()
