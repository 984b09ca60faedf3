"""Rotary embedding written as single operators, by cosines and sines that each run computes, as a part of a sequence."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, HostArray, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.attention.arguments.rotary import MODULE as ROTARY
from ort_sdk_cpu.attention.arguments.rotary import RotaryEmbedding
from ort_sdk_cpu.jit.task_sequence import TaskWords
from ort_sdk_cpu.platform.addresses import address_of

from .row_step import BATCH, FLOAT_BYTES, LENGTH, Given, RowOperand, RowStep, RunArguments, only_reader
from .views import RowViews

__all__ = ["rotation_of_heads"]

FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class ComputedRotary:
    """Cosines and sines that a run computes, (batch or 1, tokens, size), whose halves are the same."""

    own: int
    """Value that is the result."""
    cos: int
    sin: int
    size: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return self.cos, self.sin

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return ()

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        name = ("rotated_size", self.cos, self.sin)
        if name not in shared:
            shared[name] = self._numbers(given[self.cos], given[self.sin], batch_shape)
        found = shared[name]
        if found is None:
            return None
        numbers, kept = found
        return RunArguments(tuple(((kind, self.own), number) for kind, number in numbers), (), kept)

    def _numbers(self, cos: HostArray, sin: HostArray, batch_shape: tuple[int, ...]) -> Any:
        rows = cos.shape[0]
        if cos.shape != sin.shape or cos.shape[1:] != (batch_shape[1], self.size) or rows not in {1, batch_shape[0]}:
            return None
        if not cos.flags.c_contiguous or not sin.flags.c_contiguous:
            return None
        token_rows = _token_rows(rows, batch_shape)
        numbers = (
            ("cos", address_of(cos)),
            ("sin", address_of(sin)),
            ("ids", address_of(token_rows)),
            ("rows", rows * batch_shape[1]),
        )
        return numbers, (cos, sin, token_rows)


@functools.lru_cache(maxsize=64)
def _token_rows(rows: int, batch_shape: tuple[int, ...]) -> HostArray:
    """Row of each token in (rows * tokens,) rows, int64 (batch, tokens)."""
    own = np.arange(rows * batch_shape[1]).reshape(rows, batch_shape[1])
    return np.ascontiguousarray(np.broadcast_to(own, batch_shape), np.int64)


def rotation_of_heads(position: int, program: FusibleProgram, views: RowViews) -> tuple[tuple[int, ...], RowStep] | None:
    """``x * cos + concat(-second half of x, first half) * sin`` as one task, of whole heads or of the beginning of each.

    Args:
        position: of the sum.
        program: the program.
        views: of its rows, to which the result is added.

    Returns:
        Positions and task; None for another step.
    """
    finder = _Finder(program, views)
    for first, second in ((0, 1), (1, 0)):
        found = finder.rotation(position, first, second)
        if found is not None:
            return found
    return None


class _Finder:
    def __init__(self, program: FusibleProgram, views: RowViews) -> None:
        self._program, self._views = program, views
        self._positions: set[int] = set()
        self._widened: set[int] = set()
        """Positions of the steps that put one for all heads into cosines and sines."""

    def rotation(self, position: int, first: int, second: int) -> tuple[tuple[int, ...], RowStep] | None:
        """The task, if the sum's input ``first`` is the product with cosines."""
        add = self._program.steps[position]
        if add.op_type != "Add" or add.domain or len(self._shape(add.outputs[0])) != 4:
            return None
        self._positions, self._widened = {position}, set()
        by_cos, by_sin = self._inner("Mul", add.inputs[first]), self._inner("Mul", add.inputs[second])
        if by_cos is None or by_sin is None:
            return None
        for x, cos in (by_cos.inputs, by_cos.inputs[::-1]):
            for half, sin in (by_sin.inputs, by_sin.inputs[::-1]):
                tables = [self._table(value) for value in (cos, sin)]
                if tables[0] and tables[1] and self._shape(x) == self._shape(add.outputs[0]) and self._is_rotated_half(half, x):
                    return self._task(x, add.outputs[0], tables[0], tables[1])
        return None

    def _task(self, x: int, out: int, cos: int, sin: int) -> tuple[tuple[int, ...], RowStep] | None:
        rotated_size = self._shape(x)[-1]
        if rotated_size != self._shape(cos)[-1] or not self._is_float(x) or not self._is_float(cos):
            return None
        whole, joined = self._whole(x, out)
        x, out = (whole, joined) if whole else (x, out)
        heads = self._views.heads(x)
        if heads is None:
            return None
        size, row = heads.size, heads.heads * heads.size * FLOAT_BYTES
        cos_at, sin_at, rows_at, rows = [(((kind, out), 1),) for kind in ("cos", "sin", "ids", "rows")]
        tables = (cos_at, sin_at, rotated_size * FLOAT_BYTES, rotated_size // 2, 0, rows_at, rows)
        sizes = (BATCH, LENGTH, heads.heads, size)
        arguments = RotaryEmbedding.of(heads.operand.words(size), RowOperand(out, row).words(size), tables, sizes, 0)
        step = RowStep(
            TaskWords(ROTARY, "rotary_embedding", arguments.words),
            {heads.rows.value: heads.width, out: heads.heads * size},
            (heads.rows.value,),
            (out,),
            is_row_parallel=False,
            cache=ComputedRotary(out, cos, sin, rotated_size),
            repeated=heads.rows.steps | self._widened,
            required=heads.rows.required,
            rearranged=frozenset({out}),
        )
        self._views.add_heads(out, x, heads.heads, size)
        return tuple(sorted(self._positions)), step

    def _whole(self, begins: int, rotated: int) -> tuple[int, int]:
        """Heads that are rotated in part, and the Concat of rotated elements with the others; zeros where all are rotated."""
        x, joins = self._cut_from(begins), only_reader(rotated, "Concat", self._program)
        if not x or joins is None:
            return 0, 0
        joined, size = self._program.steps[joins], self._shape(x)[-1]
        if len(joined.inputs) != 2 or joined.inputs[0] != rotated or joined.attributes["axis"] not in (-1, 3):
            return 0, 0
        rest = self._made("Slice", joined.inputs[1])
        if rest is None or rest.inputs[0] != x or not self._cuts(rest, self._shape(begins)[-1], size, size):
            return 0, 0
        if self._inner("Slice", joined.inputs[1]) is None:
            return 0, 0
        self._positions |= {self._views.maker(begins), joins}
        self._views.assume_batch_shape(rotated, x)
        return x, joined.outputs[0]

    def _table(self, value: int) -> int:
        """(batch, tokens, size) with one for all heads put in, whose halves are the same; 0 for others."""
        step = self._made("Unsqueeze", value)
        axes = None if step is None or len(step.inputs) < 2 else self._constant(step.inputs[1])
        if step is None or axes is None or axes.tolist() != [1] or len(self._shape(step.inputs[0])) != 3:
            return 0
        if not self._has_halves(step.inputs[0]):
            return 0
        self._widened.add(self._views.maker(value))
        return step.inputs[0]

    def _has_halves(self, value: int) -> bool:
        """Whether a value is an element-wise function of a Concat of a value with itself."""
        for op_type in ("Cos", "Sin"):
            step = self._made(op_type, value)
            joined = None if step is None else self._made("Concat", step.inputs[0])
            if joined is not None:
                rank = len(self._shape(joined.outputs[0]))
                is_last = joined.attributes["axis"] in (-1, rank - 1)
                return is_last and len(joined.inputs) == 2 and joined.inputs[0] == joined.inputs[1]
            scaled = self._made("Mul", value)
            constant = None if scaled is None else self._constant(scaled.inputs[1])
            if scaled is not None and constant is not None and constant.size == 1:
                return self._has_halves(scaled.inputs[0])
        return False

    def _is_rotated_half(self, value: int, x: int) -> bool:
        """Whether a value is the second half of heads, with the other sign, and then the first one."""
        joined = self._inner("Concat", value)
        rank, size = len(self._shape(x)), self._shape(x)[-1]
        if joined is None or joined.attributes["axis"] not in (-1, rank - 1) or len(joined.inputs) != 2 or size % 2:
            return False
        negative = self._inner("Neg", joined.inputs[0])
        second = None if negative is None else self._inner("Slice", negative.inputs[0])
        first = self._inner("Slice", joined.inputs[1])
        if first is None or second is None or first.inputs[0] != second.inputs[0]:
            return False
        whole = self._shape(first.inputs[0])[-1]
        if first.inputs[0] not in (x, self._cut_from(x)):
            return False
        return self._cuts(first, 0, size // 2, whole) and self._cuts(second, size // 2, size, whole)

    def _cut_from(self, x: int) -> int:
        """What a value is the beginning of, along the last axis; 0 if it is none."""
        step = self._made("Slice", x)
        if step is None or not self._cuts(step, 0, self._shape(x)[-1], self._shape(step.inputs[0])[-1]):
            return 0
        return step.inputs[0]

    def _cuts(self, step: FusibleStep, start: int, end: int, size: int) -> bool:
        numbers = [self._constant(value) for value in step.inputs[1:]]
        if len(numbers) < 3 or any(array is None or array.size != 1 for array in numbers):
            return False
        own, last, axis, *steps = [int(array.reshape(-1)[0]) for array in numbers]
        return own == start and (last == end or (end == size and last > size)) and axis in (-1, 3) and steps in ([], [1])

    def _inner(self, op_type: str, value: int) -> FusibleStep | None:
        """The step of an operator that makes a value for one reader, which becomes a part of the task."""
        step, readers = self._made(op_type, value), self._program.readers.get(value, ())
        if step is None or len(readers) != 1:
            return None
        self._positions.add(self._views.maker(value))
        return step

    def _made(self, op_type: str, value: int) -> FusibleStep | None:
        step = self._program.steps.get(self._views.maker(value))
        return None if step is None or step.domain or step.op_type != op_type else step

    def _constant(self, value: int) -> Any:
        shown = self._program.values.get(value)
        return None if shown is None else shown.constant

    def _is_float(self, value: int) -> bool:
        return self._program.values[value].element_type is TensorElementType.FLOAT

    def _shape(self, value: int) -> tuple[int, ...]:
        shown = self._program.values.get(value)
        return () if shown is None else tuple(shown.shape)
