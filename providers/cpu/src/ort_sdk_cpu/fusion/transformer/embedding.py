"""Rows of a constant table, and places of the largest numbers of rows, as parts of a sequence."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.task_sequence import TaskWords
from ort_sdk_cpu.movement.arguments.gather_rows import MODULE as GATHER_ROWS
from ort_sdk_cpu.movement.arguments.gather_rows import GatherRows
from ort_sdk_cpu.platform.addresses import address_of
from ort_sdk_cpu.reduction.arguments.arg_max import MODULE as ARG_MAX
from ort_sdk_cpu.reduction.arguments.arg_max import ArgMax

from .decode import CacheWords, Given
from .steps import RowStep

__all__ = ["place_step"]

MOST_SEARCHED = 1 << 10
"""Numbers of a row that the task looks through one by one; NumPy takes less time for more."""


def place_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """A Gather of rows by (batch, tokens) places, or an ArgMax of (batch, tokens, width), as a task; None for any other step."""
    if step.domain or step.op_type not in {"ArgMax", "Gather"} or any(index not in program.values for index in step.inputs):
        return None
    return _taken(step, program) if step.op_type == "Gather" else _largest(step, program)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Places of rows that are taken."""

    own: int
    """Value that is the result."""
    places: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunWords``."""
        return (self.places,)

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunWords``."""
        return ()

    def words(self, given: Given, lead: tuple[int, ...], shared: dict[Hashable, Any]) -> CacheWords | None:
        """See ``RunWords``."""
        places = given[self.places]
        if places.shape != lead or not places.flags.c_contiguous:
            return None
        return CacheWords(((("places", self.own), address_of(places)),), (), (places,))


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """Places that are found."""

    own: int
    """Value that is the result."""
    has_axis: bool
    """Whether it keeps the axis of the rows."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunWords``."""
        return ()

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunWords``."""
        return (self.own,)

    def words(self, given: Given, lead: tuple[int, ...], shared: dict[Hashable, Any]) -> CacheWords | None:
        """See ``RunWords``."""
        out = np.empty((*lead, 1) if self.has_axis else lead, np.int64)
        return CacheWords(((("places", self.own), address_of(out)),), ((self.own, out),), ())


def _taken(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    (own, places), (out,) = step.inputs, step.outputs
    table: Any = program.values[own].constant
    shown = program.values[places]
    if table is None or table.ndim != 2 or table.dtype != np.float32 or not table.flags.c_contiguous or not table.size:
        return None
    is_place = shown.constant is None and shown.element_type is TensorElementType.INT64 and len(shown.shape) == 2
    if not is_place or step.attributes.get("axis", 0) not in (0, -2):
        return None
    limit, width = table.shape
    rows: Any = (("rows", 1),)
    arguments = GatherRows(0, address_of(table), ((("places", out), 1),), ((("value", out), 1),), limit, rows, width)
    task = TaskWords(GATHER_ROWS, "gather_rows", arguments.words)
    return RowStep(task, {out: width}, (), (out,), kept=(table,), cache=TakenRows(out, places), lead=places, may_fail=True)


def _largest(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    (x,), (out,) = step.inputs, step.outputs
    shown = program.values[x]
    is_float = shown.element_type is TensorElementType.FLOAT and len(shown.shape) == 3
    if not is_float or step.attributes.get("axis", 0) not in (-1, 2) or step.attributes.get("select_last_index", 0):
        return None
    width = shown.shape[-1]
    if not 0 < width <= MOST_SEARCHED:
        return None
    rows: Any = (("rows", 1),)
    arguments = ArgMax(((("value", x), 1),), ((("places", out), 1),), rows, width, 1, 1.0)
    task = TaskWords(ARG_MAX, "arg_max", arguments.words)
    return RowStep(task, {x: width}, (x,), (), cache=FoundPlaces(out, bool(step.attributes.get("keepdims", 1))))
