"""Writers over tasks that check indices: where an index is out of range, the shared set's function raises the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.arguments import TaskArguments
from ort_sdk_cpu.jit.native_call import in_sequence

from .copy import CopyWriter
from .writer import Writer

__all__ = ["CheckedWriter"]


class CheckedWriter:
    """A task on contiguous arrays, which sets its first argument where it fails.

    Args:
        module: name of the task's module, ``<family>.<name>``.
        name: name of the task.
        arguments: the task's, with an ``Operand`` for each address of an array that the writer is called with, the last of
            which is the output; arrays for further addresses.
        compute: the shared set's function.
        threads: how many the task may use.
        copies_first: whether the first array is copied to the output before.
        kept: the arrays at further addresses, which are kept alive.
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
        """Point the task at arrays; False if one is not contiguous."""
        if not all(arrays[index].flags.c_contiguous for _, index in self._operands):
            return False
        for position, index in self._operands:
            self._task.point(position, arrays[index])
        return True

    def __call__(self, *arrays: Any) -> None:
        """Write the output. Inputs that are not contiguous are copied."""
        contiguous = (*map(np.ascontiguousarray, arrays[:-1]), arrays[-1])
        if not self._point(contiguous) or not self._run(contiguous):
            self._redo(arrays)

    def _run(self, contiguous: Sequence[Any]) -> bool:
        """Run the task; False if it failed."""
        if self._copy is not None:
            self._copy(*contiguous)
        self._task.clear()
        self._task.run()
        return not self._task.has_failed

    def _redo(self, arrays: Sequence[Any]) -> None:
        """Compute the output by the shared set's function, which raises what is wrong with the inputs."""
        np.copyto(arrays[-1], self._compute(*arrays[:-1]))

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """A call on arrays that stay the same, which is native; None for several threads, or if an array is not contiguous."""
        if self._threads > 1 or not self._point(arrays):
            return None
        check = self._task.checked_call(lambda: self._redo(arrays), *arrays, *self._kept)
        if self._copy is None:
            return check
        return in_sequence([CopyWriter(lambda: [(arrays[-1], arrays[0])]).bind_arrays(), check])
