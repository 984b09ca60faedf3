"""EmbeddingBag: one row reduced from those of a table that a slice of a list of indices names.

Exporters write it as a Loop over bags: Slice, Gather, and a reduction. The slice has another size in each run, but its reduction
has not: so in a program, where the loop is unrolled, the reduction expands to one step for all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk.api.step_expansion import ExpandingProgram
from ort_sdk_cpu.kernel.layouts.any_layout import AnyLayoutKernel
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.kernel.writer import MakeWriter

from .arguments.embedding_bag import MODULE, EmbeddingBag

__all__ = ["MODES", "BagReduction"]

MODES = {"ReduceSum": 0, "ReduceMean": 1, "ReduceMax": 2}
"""Operator → ``mode`` of the task's arguments."""
_FLOAT, _INT64 = np.dtype(np.float32), np.dtype(np.int64)


class BagReduction(AnyLayoutKernel):
    """A reduction that may be that of a bag.

    Args:
        info: the node.
        kernel: see ``BindableKernel``, like the next.
        make_writer: see there.
    """

    def __init__(self, info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> None:
        super().__init__(kernel, make_writer, is_elementwise=False)
        self._info = info

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        """The bag, if it is one."""
        if not self._reduces_rows(program, inputs):
            return None
        gather = program.maker(inputs[0])
        found = None if gather is None or program.abstract_value(inputs[0]).shape_known else _bag(program, gather)
        if found is None:
            return None
        return [program.launch("EmbeddingBag", _Bag(self._info.op_type, self.compute, inputs, program), found)]

    def _reduces_rows(self, program: ExpandingProgram, inputs: Sequence[int]) -> bool:
        """Whether the first axis is reduced, and no other."""
        if self._info.attribute("keepdims", 1) or program.value(inputs[0]).ndim < 1:
            return False
        given = self._info.attribute("axes", None)
        if len(inputs) > 1 and inputs[1]:
            given = program.value(inputs[1]).tolist() if program.abstract_value(inputs[1]).value_known else None
        return given is not None and list(given) in ([0], [-program.value(inputs[0]).ndim])


def _bag(program: ExpandingProgram, gather: Any) -> tuple[int, ...] | None:
    """Table, indices, start and end of the rows that a step gathers."""
    if (gather.op_type, gather.domain) != ("Gather", "") or gather.attributes.get("axis", 0) != 0:
        return None
    table, indices = gather.inputs
    slice_ = program.maker(indices)
    if slice_ is None or (slice_.op_type, slice_.domain) != ("Slice", "") or len(slice_.inputs) < 3:
        return None
    if any(index and not program.abstract_value(index).value_known for index in slice_.inputs[3:]):
        return None
    if len(slice_.inputs) > 4 and slice_.inputs[4] and program.value(slice_.inputs[4]).tolist() != [1]:
        return None
    found = (table, *slice_.inputs[:3])
    arrays = [program.value(index) for index in found]
    has_types = [array.dtype for array in arrays] == [_FLOAT, _INT64, _INT64, _INT64]
    is_known = all(program.abstract_value(index).shape_known for index in found)
    has_shapes = arrays[0].ndim == 2 and all(array.ndim == 1 for array in arrays[1:]) and arrays[2].size == arrays[3].size == 1
    return found if has_types and is_known and has_shapes and arrays[0].size else None


class _Bag(OpKernel):
    """A reduction of rows of a table, as one step."""

    deterministic = True
    shape_inputs = ()

    def __init__(self, op_type: str, reduce: Callable[..., Any], inputs: Sequence[int], program: ExpandingProgram) -> None:
        self._mode, self._reduce = MODES[op_type], reduce
        self._axes = [program.value(index) for index in inputs[1:]]

    def compute(self, table: HostArray, indices: HostArray, start: HostArray, end: HostArray) -> Any:
        """As the three steps compute it."""
        rows = indices[int(start[0]) : int(end[0])]
        limit = len(table)
        if rows.size and (rows.max() >= limit or rows.min() < -limit):
            raise IndexError(f"an index is outside [{-limit}, {limit - 1}]")
        return self._reduce(table.take(rows, axis=0), *self._axes)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A task where arrays stay; what it does not do, and errors, by NumPy."""
        slots = (*inputs, outputs[0])

        def call() -> None:
            *given, out = [slot.array for slot in slots]
            np.copyto(out, self.compute(*given))

        arrays = [slot.array for slot in slots if slot.is_fixed]
        is_plain = len(arrays) == len(slots) and all(array.flags.c_contiguous for array in arrays)
        if not is_plain or not is_worth_a_task(arrays[0].size, MODULE, "embedding_bag"):
            return call
        from ort_sdk_cpu.jit.task import TaskCall

        table, indices, start, end, out = arrays
        arguments = EmbeddingBag(0, table, indices, start, end, out, len(table), len(indices), table.shape[1], self._mode)
        task = TaskCall(MODULE, "embedding_bag", arguments)
        return task.checked_call(call, *arrays)
