"""Where: as a task, or by NumPy for few elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer

from .arguments.where import MODULE as WHERE
from .arguments.where import Where
from .select import WhereAlgorithm, select_where

__all__: list[str] = []

_FEW_BYTES = 4
"""Bytes that take as long as an element of a few instructions does."""


@bindable("Where", any_type=True, elementwise=True)
def where(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """X where the condition holds, else Y."""

    def write(condition: HostArray, x: HostArray, y: HostArray, out: HostArray) -> None:
        np.copyto(out, y)
        np.copyto(out, x, where=condition)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[WhereAlgorithm, Writer]:
        (condition, x, y), out = inputs, outputs[0]
        algorithm = select_where(condition.shape, x.shape, y.shape, out.shape, out.itemsize)
        if algorithm is WhereAlgorithm.NUMPY or not is_worth_a_task(out.size, WHERE, "where"):
            return WhereAlgorithm.NUMPY, write
        scalars = (int(x.size == 1), int(y.size == 1))
        arguments = Where(Operand(0), Operand(1), Operand(2), Operand(3), out.size, out.itemsize, *scalars)
        task = TaskWriter(WHERE, "where", arguments, write, threads_for(out.nbytes // _FEW_BYTES))
        return algorithm, task if algorithm is WhereAlgorithm.TASK else _BroadcastWhere(task, out.shape)

    return SelectingMaker(make)


class _BroadcastWhere:
    """A writer that broadcasts the condition first. For one thread at a time.

    Args:
        write: the task, for a condition of each element.
        shape: of the output.
    """

    def __init__(self, write: TaskWriter, shape: tuple[int, ...]) -> None:
        self._write, self._conditions = write, np.empty(shape, np.bool_)

    def __call__(self, condition: HostArray, *arrays: Any) -> None:
        """Write the output."""
        np.copyto(self._conditions, condition)
        self._write(self._conditions, *arrays)

    def bind_arrays(self, condition: HostArray, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if one is not contiguous."""
        select = self._write.bind_arrays(self._conditions, *arrays)
        repeated = np.broadcast_to(condition, self._conditions.shape)
        repeat = CopyWriter(lambda source, target: [(target, source)]).bind_arrays(repeated, self._conditions)
        return None if select is None else in_sequence([repeat, select])
