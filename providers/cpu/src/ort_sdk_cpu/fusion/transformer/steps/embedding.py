"""Token embedding and ArgMax as parts of a sequence: Gather of rows of a constant table, and indices of rows' largest numbers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.fusion.transformer.row_step import Given, RowStep, RunArguments
from ort_sdk_cpu.jit.task_sequence import TaskWords
from ort_sdk_cpu.movement.arguments.gather_rows import MODULE as GATHER_ROWS
from ort_sdk_cpu.movement.arguments.gather_rows import GatherRows
from ort_sdk_cpu.platform.addresses import address_of
from ort_sdk_cpu.reduction.arguments.arg_max import MODULE as ARG_MAX
from ort_sdk_cpu.reduction.arguments.arg_max import ArgMax

__all__ = ["index_step"]

MAX_ARG_MAX_WIDTH = 1 << 10
"""Elements of a row up to which the task is used: it compares one by one, and NumPy's argmax by vectors."""


def index_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """A Gather of rows by indices (batch, tokens), or an ArgMax of (batch, tokens, width), as a task; None for any other step."""
    if step.domain or step.op_type not in {"ArgMax", "Gather"} or any(index not in program.values for index in step.inputs):
        return None
    return _gather(step, program) if step.op_type == "Gather" else _arg_max(step, program)


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Indices of the rows that a Gather takes."""

    own: int
    """The result's value."""
    indices: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return (self.indices,)

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return ()

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        indices = given[self.indices]
        if indices.shape != batch_shape or not indices.flags.c_contiguous:
            return None
        return RunArguments(((("indices", self.own), address_of(indices)),), (), (indices,))


@dataclass(frozen=True, slots=True)
class ArgMaxIndices:
    """Indices that an ArgMax gives."""

    own: int
    """The result's value."""
    has_axis: bool
    """Whether it keeps the axis of the rows."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return ()

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return (self.own,)

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        out = np.empty((*batch_shape, 1) if self.has_axis else batch_shape, np.int64)
        return RunArguments(((("indices", self.own), address_of(out)),), ((self.own, out),), ())


def _gather(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    (own, indices), (out,) = step.inputs, step.outputs
    table: Any = program.values[own].constant
    shown = program.values[indices]
    if table is None or table.ndim != 2 or table.dtype != np.float32 or not table.flags.c_contiguous or not table.size:
        return None
    is_index = shown.constant is None and shown.element_type is TensorElementType.INT64 and len(shown.shape) == 2
    if not is_index or step.attributes.get("axis", 0) not in (0, -2):
        return None
    limit, width = table.shape
    rows: Any = (("rows", 1),)
    arguments = GatherRows(0, address_of(table), ((("indices", out), 1),), ((("value", out), 1),), limit, rows, width)
    task = TaskWords(GATHER_ROWS, "gather_rows", arguments.words)
    return RowStep(
        task, {out: width}, (), (out,), kept=(table,), cache=GatheredRows(out, indices), batch_shape_of=indices, may_fail=True
    )


def _arg_max(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    (x,), (out,) = step.inputs, step.outputs
    shown = program.values[x]
    is_float = shown.element_type is TensorElementType.FLOAT and len(shown.shape) == 3
    if not is_float or step.attributes.get("axis", 0) not in (-1, 2) or step.attributes.get("select_last_index", 0):
        return None
    width = shown.shape[-1]
    if not 0 < width <= MAX_ARG_MAX_WIDTH:
        return None
    rows: Any = (("rows", 1),)
    arguments = ArgMax(((("value", x), 1),), ((("indices", out), 1),), rows, width, 1, 1.0)
    task = TaskWords(ARG_MAX, "arg_max", arguments.words)
    return RowStep(task, {x: width}, (x,), (), cache=ArgMaxIndices(out, bool(step.attributes.get("keepdims", 1))))
