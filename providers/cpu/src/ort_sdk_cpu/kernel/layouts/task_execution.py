"""Compiled tasks behind a ``LayoutCall``: on arrays set by argument, with workspace of the thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["TaskExecution"]


class TaskExecution:
    """Runs a task on arrays that were set before. For one thread at a time.

    Args:
        call: the task, with all arguments that do not change.
        positions: argument → position of its address among the task's arguments; None: arguments are positions.
        workspace: the workspace.
        work: position of the workspace's address among the task's arguments, and its bytes; 0 bytes if the task has none.
    """

    def __init__(
        self, call: TaskCall, positions: Mapping[int, int] | None, workspace: Workspace, work: tuple[int, int] = (0, 0)
    ) -> None:
        self._call, self._positions = call, positions
        self._work_position, work_bytes = work
        self._work = WorkspaceBinding(workspace, "task", work_bytes) if work_bytes else None
        self._arrays: dict[int, HostArray] = {}

    def set(self, argument: int, array: HostArray) -> None:
        """Use an array's memory for an argument; the array is kept alive."""
        if self._arrays.get(argument) is not array:
            self._arrays[argument] = array
            self._call.point(argument if self._positions is None else self._positions[argument], array)

    def forget(self, argument: int) -> None:
        """Release an argument's array; another one must be set before the next call."""
        self._arrays.pop(argument, None)

    @property
    def native(self) -> NativeCall:
        """The execution as C function calls."""
        return NativeCall((self._call.row,), None if self._work is None else self._prepare)

    def __call__(self) -> None:
        """Run; outputs are written when it returns."""
        self._prepare()
        self._call.run()

    def _prepare(self) -> None:
        """Point the task at this thread's workspace."""
        if self._work is not None:
            self._work.bind(self._call, self._work_position)
