"""Sequences whose attention or GEMV tasks are for few rows: where a run has many, those go as kernels, others as sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, HostArray
from ort_sdk_cpu.fusion.elementwise.chains import fused_chains
from ort_sdk_cpu.memory.workspace import Workspace

from .row_step import RowStep
from .sequence import RowSequence

__all__ = ["Readers", "SequenceWithFallback", "Tasks", "is_constant", "outputs_of", "with_fallback"]

Readers = Mapping[int, Sequence[int]]
Tasks = Mapping[tuple[int, ...], RowStep]
"""Positions of steps → the task that they are, in the order of their last."""
Part = FusedSteps | FusibleStep

IN_PARTS = "task_sequence_in_parts"
"""Algorithm of runs that a sequence as a whole does not take."""


def is_constant(program: FusibleProgram, index: int) -> bool:
    """Whether a value is known, and the same in every run."""
    shown = program.values.get(index)
    return shown is not None and shown.constant is not None


def outputs_of(members: Tasks, positions: Sequence[int], readers: Readers) -> tuple[int, ...]:
    """What tasks make that steps at other positions read."""
    written = {index for step in members.values() for index in step.outputs}
    return tuple(sorted(index for index in written if not set(positions) >= set(readers.get(index, ()))))


def with_fallback(
    whole: RowSequence,
    members: Tasks,
    inputs: Sequence[int],
    outputs: Sequence[int],
    program: FusibleProgram,
    workspace: Workspace,
) -> SequenceWithFallback:
    """A sequence, and what computes the same where it does not take a run's arrays.

    Args:
        whole: the sequence.
        members: its tasks.
        inputs: values that are given.
        outputs: values that are asked for.
        program: the program.
        workspace: the workspace.
    """
    groups = list(_groups(members))
    takes_few = any(step.most_rows for step in members.values())
    alone = [group for group in groups if takes_few and all(starmap(_is_as_fast_alone, group.items()))]
    chains = fused_chains(replace(program, steps=_steps_of(alone, program)))
    ends: dict[int, Part | None] = {position: None for chain in chains.fused for position in chain.positions}
    ends |= {chain.positions[-1]: _chain(chain, program) for chain in chains.fused}
    parts: list[Part] = []
    for group in groups:
        if group in alone or any(map(_needs_fallback, group.values())):
            steps = [found for positions, step in group.items() for found in _unfused(positions, step, program)]
            parts += [part for position, step in steps if (part := ends.get(position, step)) is not None]
        else:
            parts.append(_part_of(group, program, workspace))
    return SequenceWithFallback(whole, parts, inputs, outputs, program, is_complete=chains.is_complete)


def _needs_fallback(step: RowStep) -> bool:
    """Whether it attends a cache, is for few rows, or gives results in another layout."""
    return step.cache is not None or bool(step.rearranged or step.most_rows)


def _is_as_fast_alone(positions: tuple[int, ...], step: RowStep) -> bool:
    """Whether it is one step, and no GEMM: nothing is gained by a sequence of such, which has one thread."""
    return len(positions) == 1 and not (_needs_fallback(step) or step.product or step.repeated)


def _groups(members: Tasks) -> Iterator[Tasks]:
    """Tasks that need a fallback, each alone, and those between them."""
    group: dict[tuple[int, ...], RowStep] = {}
    for positions, step in members.items():
        if not _needs_fallback(step):
            group[positions] = step
            continue
        if group:
            yield group
        group = {}
        yield {positions: step}
    if group:
        yield group


def _steps_of(groups: Sequence[Tasks], program: FusibleProgram) -> dict[int, FusibleStep]:
    positions = sorted(position for group in groups for own in group for position in own)
    return {position: program.steps[position] for position in positions}


def _chain(chain: FusedSteps, program: FusibleProgram) -> FusedSteps:
    """An element-wise chain whose steps go one by one where it is not worth it."""
    steps = [program.steps[position] for position in chain.positions]
    return replace(chain, kernel=SequenceWithFallback(chain.kernel, steps, chain.inputs, chain.outputs, program))


def _part_of(members: Tasks, program: FusibleProgram, workspace: Workspace) -> FusedSteps:
    """Some tasks as a sequence of their own, which gives all that other steps read."""
    positions = tuple(sorted(position for own in members for position in own))
    made = {index for step in members.values() for index in step.outputs}
    known = {index for step in members.values() for index, *_ in step.required if index}
    inputs = tuple(sorted(known.union(*(step.needs for step in members.values())) - made))
    outputs = outputs_of(members, positions, program.readers)
    return FusedSteps(positions, RowSequence(list(members.values()), inputs, outputs, program, workspace), inputs, outputs)


def _unfused(positions: tuple[int, ...], task: RowStep, program: FusibleProgram) -> Iterator[tuple[int, Part]]:
    """The steps of a task one by one, but for those that are fused, with their positions."""
    one = () if task.unfused is None else task.unfused.positions
    for position in sorted(task.repeated.union(positions)):
        if task.unfused is not None and position == one[-1]:
            yield position, task.unfused
        elif position not in one:
            yield position, program.steps[position]


class SequenceWithFallback:
    """Steps of which some attend caches, or are for few rows: all at once where rows and queries are few, else part by part.

    Args:
        whole: computes all of them, or gives ``NotImplemented``.
        parts: in order.
        inputs: values that are given.
        outputs: values that are asked for.
        program: the program.
        is_complete: whether parts would be the same if compiling were allowed.
    """

    def __init__(
        self,
        whole: Any,
        parts: Sequence[Part],
        inputs: Sequence[int],
        outputs: Sequence[int],
        program: FusibleProgram,
        *,
        is_complete: bool = True,
    ) -> None:
        self._whole, self._parts, self._inputs, self._outputs = whole, parts, inputs, outputs
        self.is_complete = is_complete
        self.algorithm: str | None = None
        """The one used last."""
        last = {index: position for position, part in enumerate(parts) for index in part.inputs}
        made, read = {index for part in parts for index in part.outputs}, set(last)
        self._constants = {index: program.values[index].constant for index in read if is_constant(program, index)}
        self._read_last = [
            [index for index in sorted(made.difference(outputs, (0,))) if last.get(index) == position]
            for position in range(len(parts))
        ]
        """For each part, values that it is the last to read: they are dropped after it."""

    def compute(self, *inputs: HostArray) -> Any:
        """New outputs; ``NotImplemented`` if a part cannot compute them."""
        result = self._whole.compute(*inputs)
        self.algorithm = IN_PARTS if result is NotImplemented else getattr(self._whole, "algorithm", None)
        if result is not NotImplemented:
            return result
        values: dict[int, Any] = {0: None, **self._constants, **dict(zip(self._inputs, inputs, strict=True))}
        for part, read_last in zip(self._parts, self._read_last, strict=True):
            made = part.kernel.compute(*[values[index] for index in part.inputs])
            if made is NotImplemented:
                return NotImplemented
            values.update(zip(part.outputs, made if isinstance(made, tuple) else (made,), strict=False))
            values[0] = None
            for index in read_last:
                del values[index]
        results = tuple(values[index] for index in self._outputs)
        return results if len(results) > 1 else results[0]
