"""Views and shapes in runs of dynamic shapes: an expression in place of steps that each make an array of a few integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram
from ort_sdk_cpu.fusion.transformer.attention_pattern import AttentionGroup, attention_groups
from ort_sdk_cpu.fusion.transformer.layers import Tasks, fused_sequence, sequences_of, tasks_of, unfit_tasks
from ort_sdk_cpu.fusion.transformer.row_step import RowStep
from ort_sdk_cpu.memory.workspace import shared_workspace

from .expressions import Expression, Expressions, function_of
from .scalar_steps import ScalarSteps

__all__ = ["fused_views"]

SHAPES = frozenset({"Add", "Cast", "Concat", "Gather", "Mul", "Shape", "Squeeze", "Sub", "Unsqueeze"})
"""Operators whose steps are left out if only shapes are made of their results."""


@dataclass(frozen=True, slots=True)
class ViewKernel:
    """A view of its first array."""

    compute: Callable[..., Any]


def fused_views(
    program: FusibleProgram, expressions: Expressions, scalars: ScalarSteps, *, has_rows: bool
) -> tuple[list[FusedSteps], Mapping[int, Sequence[int]]]:
    """Sequences of tasks on rows, attention with its views, and other views with what computes their shapes.

    Args:
        program: whose shapes vary.
        expressions: its expressions.
        scalars: its steps that become generated code, and read what that needs.
        has_rows: whether steps may be tasks on rows.

    Returns:
        The steps, and who reads each value then: not those whose work they repeat, where nothing else reads that.
    """
    has_softmax = any(step.op_type in {"BiasSoftmax", "Softmax"} for step in program.steps.values())
    groups = list(attention_groups(program, expressions)) if has_softmax else []
    return _Chooser(program, expressions, scalars, groups, has_rows=has_rows).fused()


class _Chooser:
    """Chooses until nothing has to be given up.

    Args:
        program: whose shapes vary.
        expressions: its expressions.
        scalars: its steps that become generated code.
        groups: its attentions of several steps.
        has_rows: whether steps may be tasks on rows.
    """

    def __init__(
        self,
        program: FusibleProgram,
        expressions: Expressions,
        scalars: ScalarSteps,
        groups: list[AttentionGroup],
        *,
        has_rows: bool,
    ) -> None:
        self._program, self._expressions, self._scalars, self._groups = program, expressions, scalars, groups
        self._tasks: Tasks = tasks_of(program, expressions, groups) if has_rows else {}

    def fused(self) -> tuple[list[FusedSteps], Mapping[int, Sequence[int]]]:
        """See ``fused_views``."""
        while True:
            left = self._groups_left()
            chosen = _Chosen.of(self._program, self._expressions, self._scalars, [*left, *starmap(_Task, self._tasks.items())])
            held = chosen.held_up(left)
            if held:
                self._groups = [group.uncached if group in held and group.uncached else group for group in self._groups]
                continue
            sequences = sequences_of(self._tasks, self._program, chosen.readers)
            if not self._give_up_others(sequences, chosen.readers):
                return self._answer(left, chosen, sequences), {own: sorted(readers) for own, readers in chosen.readers.items()}

    def _groups_left(self) -> list[AttentionGroup]:
        taken = {position for positions in self._tasks for position in positions}
        return [group for group in self._groups if taken.isdisjoint(group.positions)]

    def _give_up_others(self, sequences: Sequence[Tasks], readers: Mapping[int, Sequence[int]]) -> bool:
        """Leave out tasks that do others' work, too, and cannot be in a sequence; whether there were any."""
        covered = {
            positions for members in sequences for positions in members.keys() - unfit_tasks(members, self._program, readers)
        }
        several = {positions for positions, task in self._tasks.items() if task.repeated or len(positions) > 1}
        others = several - covered
        self._tasks = {positions: task for positions, task in self._tasks.items() if positions not in others}
        return bool(others)

    def _answer(self, groups: Sequence[AttentionGroup], chosen: _Chosen, sequences: Sequence[Tasks]) -> list[FusedSteps]:
        workspace, expressions = shared_workspace(), self._expressions
        whole = [fused_sequence(members, self._program, chosen.readers, workspace) for members in sequences]
        return [*whole, *(group.fused(expressions) for group in groups), *chosen.fused(expressions)]


@dataclass(frozen=True, slots=True)
class _Task:
    """A task on rows as what takes the place of its steps."""

    positions: tuple[int, ...]
    task: RowStep

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that it is given."""
        return tuple(sorted(self.task.needs.union(index for index, *_ in self.task.required if index)))


@dataclass(slots=True)
class _Chosen:
    """Which steps are views that something reads, given the groups that are attention."""

    program: FusibleProgram
    views: dict[int, Expression]
    """Position → view."""
    readers: dict[int, list[int]]
    """Value → positions where it is read then."""

    @classmethod
    def of(
        cls,
        program: FusibleProgram,
        expressions: Expressions,
        scalars: ScalarSteps,
        groups: Sequence[AttentionGroup | _Task],
    ) -> _Chosen:
        """From the end to the beginning: what nothing reads but steps that are left out is left out."""
        found = cls(program, {}, {})
        of_group = {position: group for group in groups for position in group.positions}
        repeated = {position for group in groups if isinstance(group, _Task) for position in group.task.repeated}
        elsewhere = {index: [own for own in readers if own not in program.steps] for index, readers in program.readers.items()}
        found.readers.update({index: own for index, own in elsewhere.items() if own})
        for position in reversed(list(program.steps)):
            group, step = of_group.get(position), program.steps[position]
            if group is not None:
                if position == group.positions[-1]:
                    found._read(position, group.reads)
                continue
            is_read = any(index in found.readers for index in step.outputs if index)
            if position in scalars.positions:
                if is_read:
                    found._read(position, scalars.reads(position))
                continue
            view = expressions.array(step.outputs[0]) if expressions.is_view(step) else None
            if view is not None and len(view.steps) > 1:
                if is_read:
                    found.views[position] = view
                    found._read(position, sorted(view.values))
            elif is_read or (view is None and position not in repeated and (step.op_type not in SHAPES or step.domain)):
                found._read(position, step.inputs)
        return found

    def _read(self, position: int, values: Sequence[int]) -> None:
        for index in values:
            self.readers.setdefault(index, []).append(position)

    def held_up(self, groups: Sequence[AttentionGroup]) -> list[AttentionGroup]:
        """Groups whose cache something reads before they are done."""
        return [
            group
            for group in groups
            if any(reader <= group.positions[-1] for index in group.present for reader in self.readers.get(index, ()))
        ]

    def fused(self, expressions: Expressions) -> Iterator[FusedSteps]:
        """The views as steps."""
        for position, view in self.views.items():
            ranks: Mapping[int, int] = {value: expressions.rank(value) for value in sorted(view.values)}
            kernel = ViewKernel(function_of(ranks, view.text, sorted(view.reshaped)))
            repeated = tuple(sorted(view.steps - {position}))
            yield FusedSteps((position,), kernel, tuple(ranks), self.program.steps[position].outputs, repeated)
