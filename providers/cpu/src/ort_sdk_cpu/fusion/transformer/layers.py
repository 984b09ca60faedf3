"""Fuses neighbouring steps that map rows to rows into one step where shapes vary: a transformer's layers are one call.

The team of threads starts once for all of them. Values between them are in the workspace, and each thread goes through its own
rows from task to task: it waits for the others only where it needs theirs (``sequence``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep
from ort_sdk_cpu.elementwise.arguments.functions import MODULE as FUNCTIONS
from ort_sdk_cpu.fusion.shapes.expressions import Expressions
from ort_sdk_cpu.memory.workspace import Workspace

from .attention import attention_step
from .attention_pattern import AttentionGroup
from .fallback import Readers, Tasks, is_constant, outputs_of, with_fallback
from .rotary import rotation_of_heads
from .row_step import RowStep
from .sequence import RowSequence
from .steps.embedding import index_step
from .steps.gemm import gemm_with_epilogue
from .steps.nbits import nbits_step
from .steps.normalization import normalization_of_heads
from .steps.rows import row_step
from .views import RowViews

__all__ = ["RowSequence", "Tasks", "fused_sequence", "sequences_of", "tasks_of", "unfit_tasks"]

LEAST_STEPS = 3
"""Steps from which one start of a team and one call from Python are less than one for each step."""


def tasks_of(program: FusibleProgram, expressions: Expressions, groups: Sequence[AttentionGroup]) -> Tasks:
    """All steps of a program whose shapes vary that map rows to rows.

    Args:
        program: the program.
        expressions: its expressions.
        groups: its attentions that are written as several steps.
    """
    tasks: dict[tuple[int, ...], RowStep] = {}
    views = RowViews(program, expressions, {group.output: group.query_value for group in groups})
    for position, step in program.steps.items():
        followed = gemm_with_epilogue(position, program)
        made = _single(step, program) if followed is None else None
        positions, task = followed if followed is not None else ((position,), made)
        if task is not None:
            tasks[positions] = views.resolved(task)
        if task is not None and task.is_row_parallel:
            for index in task.writes:
                views.assume_batch_shape(index, step.inputs[0])
    several: dict[tuple[int, ...], RowStep] = {}
    for position in program.steps:
        for find in (normalization_of_heads, rotation_of_heads):
            found = find(position, program, views)
            several |= {} if found is None else dict([found])
    several |= dict(filter(None, [attention_step(group, program, views, expressions) for group in groups]))
    taken = {position for positions in several for position in positions}
    tasks = {positions: task for positions, task in tasks.items() if taken.isdisjoint(positions)} | several
    return dict(sorted(tasks.items(), key=lambda row: row[0][-1]))


def _single(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    return row_step(step, program) or index_step(step, program) or nbits_step(step, program)


def sequences_of(tasks: Tasks, program: FusibleProgram, readers: Readers) -> list[Tasks]:
    """Tasks that follow each other, with nothing between that needs what one of them makes; those that are worth it.

    Args:
        tasks: of the program.
        program: the program.
        readers: value → positions where it is read, if steps whose work the tasks do are left out.
    """
    return [members for members in _segments(tasks, program, readers) if _is_worth_it(members)]


def _is_worth_it(members: Tasks) -> bool:
    """Whether tasks are several, and not all element-wise: those are better as one loop over elements."""
    return sum(map(len, members)) >= LEAST_STEPS and any(task.task.module != FUNCTIONS for task in members.values())


def unfit_tasks(members: Tasks, program: FusibleProgram, readers: Readers) -> set[tuple[int, ...]]:
    """Positions of tasks that cannot be in their sequence: it is not given what they need, or others read inside of them."""
    inputs, whole = {0, *_given(members, program)}, {position for positions in members for position in positions}
    found = set()
    for positions, task in members.items():
        made = {index for position in positions for index in program.steps[position].outputs if index}.difference(task.outputs)
        read = {reader for index in made for reader in readers.get(index, ())}
        elsewhere = {reader for index in task.rearranged for reader in readers.get(index, ())} - whole
        early = any(reader <= positions[-1] for index in task.outputs for reader in set(readers.get(index, ())) - whole)
        known = {index for index, *_ in task.required}.union(() if task.cache is None else task.cache.inputs)
        if elsewhere or early or not known <= inputs or not read.issubset(positions):
            found.add(positions)
    return found


def _segments(tasks: Tasks, program: FusibleProgram, readers: Readers) -> Iterator[Tasks]:
    covered = {position for positions in tasks for position in positions}
    members: dict[tuple[int, ...], RowStep] = {}
    values: set[int] = set()
    made: set[int] = set()
    end = math.inf
    asked = {index for task in tasks.values() for index, *_ in task.required}
    for positions, task in tasks.items():
        is_unfit = any(index in made for index, *_ in task.required)
        others = [reader for index in task.outputs for reader in readers.get(index, ()) if reader not in covered]
        if task.batch_shape_of and (others or not asked.isdisjoint(task.outputs)):
            # Others need its result, so that the sequence would end behind it.
            continue
        if positions[-1] > end or values.isdisjoint(task.reads) or is_unfit:
            yield members
            members, values, made, end = {}, set(), set(), math.inf
        members[positions] = task
        values.update(task.widths)
        made.update(index for position in positions for index in program.steps[position].outputs if index)
        end = min([end, *others])
    yield members


def fused_sequence(members: Tasks, program: FusibleProgram, readers: Readers, workspace: Workspace) -> FusedSteps:
    """A sequence as one step.

    Args:
        members: its tasks.
        program: the program.
        readers: as for ``sequences_of``.
        workspace: the workspace.
    """
    positions, repeated = _covered(members)
    inputs = _given(members, program)
    outputs = outputs_of(members, positions, readers)
    kernel: Any = RowSequence(list(members.values()), inputs, outputs, program, workspace)
    if any(step.cache is not None or step.most_rows for step in members.values()):
        kernel = with_fallback(kernel, members, inputs, outputs, program, workspace)
    return FusedSteps(positions, kernel, inputs, outputs, repeated)


def _covered(members: Tasks) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of tasks, and of the steps whose work they do beside."""
    positions = sorted(position for own in members for position in own)
    repeated = frozenset().union(*(step.repeated for step in members.values())).difference(positions)
    return tuple(positions), tuple(sorted(repeated))


def _given(members: Tasks, program: FusibleProgram) -> tuple[int, ...]:
    """What the tasks need, and what steps whose work they do would."""
    positions, repeated = ([program.steps[position] for position in own] for own in _covered(members))
    made, again = ({index for step in steps for index in step.outputs} for steps in (positions, repeated))
    read = {index for step in (*positions, *repeated) for index in step.inputs if index and not is_constant(program, index)}
    needed = frozenset().union(*(task.needs for task in members.values()))
    return tuple(sorted((read - again | needed) - made))
