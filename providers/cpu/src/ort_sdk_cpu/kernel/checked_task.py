"""Writers over tasks that look at indices: where one is out of range, the shared set says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.arguments import TaskArguments
from ort_sdk_cpu.jit.native_call import in_turn

from .bound import Writer
from .copy import CopyWriter

__all__ = ["CheckedWriter"]


class CheckedWriter:
    """A task on contiguous arrays, which sets its first argument where it fails.

    Args:
        module: name of the task's module, of ``TASK_MODULES``.
        name: the task's.
        arguments: the task's, with an ``Operand`` for each address of an array that the writer is called with, the last of
            which is the output; arrays for further addresses.
        compute: the shared set's function.
        threads: how many the task may use.
        copies_first: whether the output has to be a copy of the first array before.
        kept: those arrays.
    """

    def __init__(
        self,
        module: str,
        name: str,
        arguments: TaskArguments,
        compute: Callable[..., Any],
        threads: int = 1,
        *,
        copies_first: bool = False,
        kept: Sequence[HostArray] = (),
    ) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        self._task = TaskCall(module, name, arguments.without_operands(), threads)
        self._operands, self._compute, self._threads, self._kept = arguments.operands(), compute, threads, kept
        self._copy: Writer | None = CopyWriter(lambda *arrays: [(arrays[-1], arrays[0])]) if copies_first else None

    def _point(self, arrays: Sequence[Any]) -> bool:
        """Tell the task where arrays are; False if one is not contiguous."""
        if not all(arrays[index].flags.c_contiguous for _, index in self._operands):
            return False
        for position, index in self._operands:
            self._task.point(position, arrays[index])
        return True

    def __call__(self, *arrays: Any) -> None:
        """Write the output. Inputs that lie otherwise than the task reads them, as turned ones do, are copied."""
        lying = (*map(np.ascontiguousarray, arrays[:-1]), arrays[-1])
        if not self._point(lying) or not self._does(lying):
            self._redo(arrays)

    def _does(self, lying: Sequence[Any]) -> bool:
        """Have the task do the work; whether it could."""
        if self._copy is not None:
            self._copy(*lying)
        self._task.clear()
        self._task.run()
        return not self._task.has_failed

    def _redo(self, arrays: Sequence[Any]) -> None:
        np.copyto(arrays[-1], self._compute(*arrays[:-1]))

    def fixed(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay; it needs no Python where one thread does the work. None if one is not contiguous."""
        if self._threads > 1 or not self._point(arrays):
            return None
        check = self._task.checked(lambda: self._redo(arrays), *arrays, *self._kept)
        if self._copy is None:
            return check
        return in_turn([CopyWriter(lambda: [(arrays[-1], arrays[0])]).fixed(), check])
