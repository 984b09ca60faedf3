"""Alias analysis of rows: which values are the same rows as others, and which are heads of some, whatever reshapes them.

A sequence has no steps for Reshape, Transpose, Split, Slice and Gather of heads: its tasks read rows in place, by strides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.fusion.shapes.expressions import OPEN, Expressions

from .row_step import FLOAT_BYTES, RowOperand, RowStep, renamed

__all__ = ["SWAP_TOKENS_AND_HEADS", "Heads", "RowViews", "SameRows"]

SWAP_TOKENS_AND_HEADS = (0, 2, 1, 3)
"""Permutation of (batch, tokens, heads, size) to (batch, heads, tokens, size), and back."""
HEADS_FIRST = (2, 0, 1, 3)
"""Permutation of (batch, tokens, heads, size) to (heads, batch, tokens, size), from which GatherND takes some heads."""
BATCH_BEFORE_HEADS = (1, 0, 2, 3)
"""Permutation of that to (batch, heads, tokens, size)."""
_DIMENSION = re.compile(r"v(\d+)\.shape\[(\d)\]")

Required = tuple[int, int, int]
"""(value, axis, batch axis): that axis must be as long as this one of (batch, tokens); value 0: the axis is the length itself."""


@dataclass(frozen=True, slots=True)
class SameRows:
    """A value as the rows of another one."""

    value: int
    steps: frozenset[int] = frozenset()
    """Positions of the steps that only reshape, or work out a shape."""
    required: frozenset[Required] = frozenset()


@dataclass(frozen=True, slots=True)
class Heads:
    """A value (batch, heads, tokens, size) as columns of rows."""

    rows: SameRows
    width: int
    """Elements of a row."""
    start: int
    """First of its columns."""
    heads: int
    size: int
    step: int
    """Columns from head to head."""

    @property
    def operand(self) -> RowOperand:
        """The same as a task's operand."""
        return RowOperand(self.rows.value, self.width * FLOAT_BYTES, self.start * FLOAT_BYTES, self.step * FLOAT_BYTES)

    def through(self, position: int) -> Heads:
        """The same behind a step that only permutes axes."""
        return replace(self, rows=replace(self.rows, steps=self.rows.steps | {position}))

    def selected(self, first: int, count: int, position: int) -> Heads:
        """Some of the heads, which the step at a position takes."""
        return replace(self.through(position), start=self.start + first * self.step, heads=count)

    def sliced(self, start: int, size: int, steps: frozenset[int]) -> Heads:
        """Some elements of each head, which steps slice out of it."""
        return replace(self, rows=replace(self.rows, steps=self.rows.steps | steps), start=self.start + start, size=size)


class RowViews:
    """Views of rows in a program.

    Args:
        program: whose shapes vary.
        expressions: its expressions.
        attended: result of an attention → its queries.
    """

    def __init__(self, program: FusibleProgram, expressions: Expressions, attended: Mapping[int, int]) -> None:
        self._program, self._expressions, self._sources = program, expressions, dict(attended)
        self._rows_of_heads: dict[bool, dict[int, Heads]] = {True: {}, False: {}}
        """Values that tasks make as rows of heads; by whether heads are before tokens in the program."""

    def assume_batch_shape(self, value: int, source: int) -> None:
        """A value has the batch and tokens of ``source``, if it has the same rank."""
        if len(self._shape(value)) == len(self._shape(source)):
            self._sources[value] = source

    def add_heads(self, value: int, source: int, heads: int, size: int, *, are_heads_first: bool = True) -> None:
        """A task makes (batch, heads, tokens, size), or with tokens before heads, as rows; batch and tokens are ``source``'s."""
        self._rows_of_heads[are_heads_first][value] = Heads(SameRows(value), heads * size, 0, heads, size, size)
        self._sources[value] = source

    def rows(self, value: int) -> SameRows:
        """The value whose rows a value has, through all that reshapes them."""
        steps: frozenset[int] = frozenset()
        required: frozenset[Required] = frozenset()
        while True:
            position, step = self._maker(value)
            found = None if step is None or step.op_type != "Reshape" else self.reshaped(step, value)
            if found is None or step is None:
                return SameRows(value, steps, required)
            steps, required, value = steps | found.steps | {position}, required | found.required, found.value

    def resolved(self, step: RowStep) -> RowStep:
        """A step that reads the rows of values that reshapes are views of."""
        found = {index: self.rows(index) for index in step.reads}
        if all(own.value == index for index, own in found.items()):
            return step
        names = {index: own.value for index, own in found.items()}
        steps = frozenset().union(step.repeated, *(own.steps for own in found.values()))
        required = frozenset().union(step.required, *(own.required for own in found.values()))
        return replace(
            step,
            task=renamed(step.task, names),
            widths={names.get(index, index): width for index, width in step.widths.items()},
            reads=tuple(names[index] for index in step.reads),
            repeated=steps,
            required=required,
            activation_task=None if step.activation_task is None else self.resolved(step.activation_task),
        )

    def reshaped(self, step: FusibleStep, value: int) -> SameRows | None:
        """The input of a Reshape to ``value``, (rows, width) or (batch, tokens, width), if its rows stay; else None."""
        x = step.inputs[0]
        shape, before = self._shape(value), self._shape(x)
        if len(shape) not in (2, 3) or len(before) not in (2, 3) or shape[-1] != before[-1]:
            return None
        return self._kept(step, x, (str(shape[-1]),))

    def merged(self, step: FusibleStep, value: int) -> SameRows | None:
        """The input (batch, tokens, heads, size) of a Reshape to ``value``, which puts heads side by side; else None."""
        shape, before = self._shape(value), self._shape(step.inputs[0])
        if len(shape) not in (2, 3) or len(before) != 4 or shape[-1] != before[2] * before[3]:
            return None
        return self._kept(step, step.inputs[0], (str(shape[-1]),))

    def single(self, value: int) -> Heads | None:
        """A value (batch, tokens, size) as the only head of rows, or as some of their columns."""
        if len(self._shape(value)) != 3:
            return None
        own, start, split = self._part_of(value)
        rows, size = self.rows(own), self._shape(value)[-1]
        return Heads(replace(rows, steps=rows.steps | split), self._shape(own)[-1], start, 1, size, size)

    def heads(self, value: int) -> Heads | None:
        """A value (batch, heads, tokens, size) as columns of rows."""
        if value in self._rows_of_heads[True]:
            return self._rows_of_heads[True][value]
        whole, start, steps = self._sliced(value)
        if steps:
            heads = self.heads(whole)
            return None if heads is None else heads.sliced(start, self._shape(value)[-1], steps)
        heads_of_tokens = self._transposed(value, SWAP_TOKENS_AND_HEADS, self.heads_of_tokens)
        return self._transposed(value, BATCH_BEFORE_HEADS, self._selected_heads) if heads_of_tokens is None else heads_of_tokens

    def _transposed(self, value: int, axes: tuple[int, ...], find: Callable[[int], Heads | None]) -> Heads | None:
        """What ``find`` finds before a Transpose by this permutation; None for what another step makes."""
        position, step = self._maker(value)
        if step is None or step.op_type != "Transpose" or tuple(step.attributes.get("perm", ())) != axes:
            return None
        before = find(step.inputs[0])
        return None if before is None else before.through(position)

    def _selected_heads(self, value: int) -> Heads | None:
        """A value (heads, batch, tokens, size) as columns of rows: what GatherND takes by head."""
        position, step = self._maker(value)
        if step is None or step.op_type != "GatherND":
            return self._transposed(value, HEADS_FIRST, self.heads_of_tokens)
        indices = self._expressions.constant(step.inputs[1])
        before = (
            self._selected_heads(step.inputs[0]) if indices is not None and indices.ndim == 2 and indices.shape[1] == 1 else None
        )
        if before is None or step.attributes.get("batch_dims", 0) or not indices.size:
            return None
        first, count = int(indices[0, 0]) % before.heads, len(indices)
        follow = np.array_equal(indices[:, 0] % before.heads, np.arange(first, first + count))
        return before.selected(first, count, position) if follow else None

    def heads_of_tokens(self, value: int) -> Heads | None:
        """A value (batch, tokens, heads, size) as columns of rows."""
        if value in self._rows_of_heads[False]:
            return self._rows_of_heads[False][value]
        if len(self._shape(value)) != 4:
            return None
        selected = self._selected(value)
        if selected is not None:
            return selected
        heads, size = self._shape(value)[2:]
        split = self._split(value)
        return None if split is None else Heads(*split, heads, size, size)

    def _split(self, value: int) -> tuple[SameRows, int, int] | None:
        """(rows, their width, first column) of what a Reshape splits into (batch, tokens, ...); None for anything else."""
        position, reshape = self._maker(value)
        if reshape is None or reshape.op_type != "Reshape":
            return None
        tail, x = self._shape(value)[2:], reshape.inputs[0]
        if len(self._shape(x)) not in (2, 3) or self._shape(x)[-1] != math.prod(tail):
            return None
        kept = self._kept(reshape, x, tuple(map(str, tail)))
        if kept is None:
            return None
        own, start, split = self._part_of(x)
        rows = self.rows(own)
        steps = rows.steps | kept.steps | split | {position}
        return SameRows(rows.value, steps, rows.required | kept.required), self._shape(own)[-1], start

    def _selected(self, value: int) -> Heads | None:
        """Some heads of (batch, tokens, heads, size), or one part of all of (batch, tokens, heads, parts, size)."""
        position, step = self._maker(value)
        whole = 0 if step is None else step.inputs[0]
        rank = len(self._shape(whole))
        if step is None or step.op_type not in {"Gather", "Slice"} or rank not in (4, 5):
            return None
        first = self._first_of(step, rank - 2)
        if first is None:
            return None
        if rank == 4:
            heads_of_tokens = self.heads_of_tokens(whole)
            return None if heads_of_tokens is None else heads_of_tokens.selected(first, self._shape(value)[2], position)
        split = self._split(whole)
        if split is None or step.op_type == "Slice":
            return None
        rows, width, start = split
        heads, parts, size = self._shape(whole)[2:]
        return Heads(rows, width, start + first * size, heads, size, parts * size).through(position)

    def _first_of(self, step: FusibleStep, axis: int) -> int | None:
        """First index that a step takes along an axis, where it takes a range, the same in every run; else None."""
        given = [self._expressions.constant(index) for index in step.inputs[1:]]
        whole, shape = self._shape(step.inputs[0]), self._shape(step.outputs[0])
        if not given or any(array is None or array.size != 1 for array in given):
            return None
        numbers = [int(array.reshape(-1)[0]) for array in given]
        if step.op_type == "Gather":
            is_one = step.attributes.get("axis", 0) % len(whole) == axis and math.prod(shape) * whole[axis] == math.prod(whole)
            return numbers[0] % whole[axis] if is_one else None
        if len(numbers) < 3 or numbers[2] % len(whole) != axis or numbers[3:] not in ([], [1]):
            return None
        begin, end, _ = slice(numbers[0], numbers[1]).indices(whole[axis])
        return begin if end - begin == shape[axis] else None

    def unchanged(self, step: FusibleStep) -> SameRows | None:
        """The input (batch, heads, tokens, size) of a Reshape that asks for just that; None for others."""
        shape, target = self._shape(step.inputs[0]), self._expressions.target(step)
        if target is None or len(shape) != 4 or len(target.texts) != 4 or target.texts.count(OPEN) > 1:
            return None
        batch, heads, tokens, size = target.texts
        if heads not in {OPEN, str(shape[1])} or size not in {OPEN, str(shape[3])}:
            return None
        required = self.required((batch, tokens))
        return None if required is None else SameRows(step.inputs[0], target.steps, required)

    def _part_of(self, value: int) -> tuple[int, int, frozenset[int]]:
        """What a value is a part of, its first element in a row, and the Split; itself if no Split made it."""
        position, step = self._maker(value)
        if step is None or step.op_type != "Split" or step.attributes.get("axis", 0) not in (-1, len(self._shape(value)) - 1):
            return value, 0, frozenset()
        sizes = [self._shape(output)[-1] if output in self._program.values else 0 for output in step.outputs]
        index = step.outputs.index(value)
        is_known = all(sizes) and sum(sizes) == self._shape(step.inputs[0])[-1] and self._are_sizes_known(step)
        return (step.inputs[0], sum(sizes[:index]), frozenset({position})) if is_known else (value, 0, frozenset())

    def _sliced(self, value: int) -> tuple[int, int, frozenset[int]]:
        """What a value is a part of along its last axis, its first element there, and the step; itself if nothing cut it."""
        position, step = self._maker(value)
        if step is None or step.op_type != "Slice":
            return self._part_of(value)
        given = [self._expressions.constant(index) for index in step.inputs[1:]]
        shape, whole = self._shape(value), self._shape(step.inputs[0])
        if not shape or not whole or len(given) < 3 or any(array is None or array.size != 1 for array in given):
            return value, 0, frozenset()
        start, end, axis, *steps = [int(array.reshape(-1)[0]) for array in given]
        is_forwards = axis in (-1, len(shape) - 1) and steps in ([], [1]) and 0 <= start < end
        is_known = is_forwards and shape[-1] == min(end, whole[-1]) - start
        return (step.inputs[0], start, frozenset({position})) if is_known else (value, 0, frozenset())

    def _are_sizes_known(self, split: FusibleStep) -> bool:
        given = split.inputs[1] if len(split.inputs) > 1 else 0
        return not given or self._program.values[given].constant is not None

    def _kept(self, step: FusibleStep, x: int, tail: tuple[str, ...]) -> SameRows | None:
        """``x`` if a Reshape asks for its batch and tokens, or for all rows, and then for ``tail``, one number left open."""
        target = self._expressions.target(step)
        if target is None:
            return None
        batch_shape, asked = target.texts[: -len(tail)], target.texts[-len(tail) :]
        if [*batch_shape, *asked].count(OPEN) > 1 or any(
            own not in {OPEN, wanted} for own, wanted in zip(asked, tail, strict=True)
        ):
            return None
        required = frozenset[Required]() if batch_shape == (OPEN,) else self.required(batch_shape)
        return None if required is None else SameRows(x, target.steps, required)

    def required(self, batch_shape: tuple[str, ...]) -> frozenset[Required] | None:
        """What must hold for two sizes to be batch and tokens; None where that is not known."""
        found: set[Required] = set()
        for axis, text in enumerate(batch_shape):
            dimension = None if text == OPEN else (0, int(text)) if text.isdigit() else self._dimension(text)
            if len(batch_shape) != 2 or (dimension is None and text != OPEN):
                return None
            if dimension is not None:
                found.add((*dimension, axis))
        return frozenset(found)

    def _dimension(self, text: str) -> tuple[int, int] | None:
        """A text as an axis of a value that steps of rows do not make."""
        match = _DIMENSION.fullmatch(text)
        if match is None:
            return None
        value, axis = map(int, match.groups())
        before = self._like(value, axis)
        is_laid_out = any(value in laid_out for laid_out in self._rows_of_heads.values())
        if before and (axis < 2 or is_laid_out or (axis < 3 and len(self._shape(before)) == 4)):
            return self._dimension(self._expressions.dims(before).texts[axis])
        return value, axis

    def _like(self, value: int, axis: int) -> int:
        """What a value is made of that has the same batch and tokens, and is as long along an axis; 0 if that is not known."""
        if value in self._sources:
            return self._sources[value]
        own, _, steps = self._sliced(value)
        if steps and axis < len(self._shape(value)) - 1:
            return own
        return self._program.steps[self.maker(value)].inputs[0] if axis < 2 and self._selected(value) else 0

    def maker(self, value: int) -> int:
        """Position of the step that makes a value; -1 for none."""
        return self._expressions.makers.get(value, -1)

    def _maker(self, value: int) -> tuple[int, FusibleStep | None]:
        position = self.maker(value)
        return position, self._program.steps.get(position)

    def _shape(self, value: int) -> tuple[int, ...]:
        shown: Any = self._program.values.get(value)
        return () if shown is None else tuple(shown.shape)
