"""Views and shapes in runs whose shapes vary: a line of Python in the place of steps that each make an array of a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram

from .attention import AttentionGroup, attention_groups
from .expressions import Expression, Expressions, function_of

__all__ = ["fused_views"]

SHAPES = frozenset({"Add", "Cast", "Concat", "Gather", "Mul", "Shape", "Squeeze", "Sub", "Unsqueeze"})
"""Operators whose steps are left out if only shapes are made of their results."""


@dataclass(frozen=True, slots=True)
class ViewKernel:
    """A view of its first array."""

    compute: Callable[..., Any]


def fused_views(program: FusibleProgram) -> tuple[list[FusedSteps], Mapping[int, Sequence[int]]]:
    """Attention with its views, and other views with what works out their shapes.

    Args:
        program: whose shapes vary.

    Returns:
        The steps, and who reads each value then: not those whose work they repeat, where nothing else reads that.
    """
    if not any(step.op_type in {"Reshape", "Softmax"} for step in program.steps.values()):
        return [], program.readers
    told = Expressions(program)
    groups = list(attention_groups(program, told))
    while True:
        chosen = _Chosen.of(program, told, groups)
        held = chosen.held_up(groups)
        if not held:
            fused = [*(group.fused(told) for group in groups), *chosen.fused(told)]
            return fused, {index: sorted(readers) for index, readers in chosen.readers.items()}
        groups = [group.uncached if group in held and group.uncached is not None else group for group in groups]


@dataclass(slots=True)
class _Chosen:
    """Which steps are views that something reads, given the groups that are attention."""

    program: FusibleProgram
    views: dict[int, Expression]
    """Position → view."""
    readers: dict[int, list[int]]
    """Value → positions where it is read then."""

    @classmethod
    def of(cls, program: FusibleProgram, told: Expressions, groups: Sequence[AttentionGroup]) -> _Chosen:
        """From the end to the beginning: what nothing reads but steps that are left out is left out."""
        found = cls(program, {}, {})
        of_group = {position: group for group in groups for position in group.positions}
        elsewhere = {index: [own for own in readers if own not in program.steps] for index, readers in program.readers.items()}
        found.readers.update({index: own for index, own in elsewhere.items() if own})
        for position in reversed(list(program.steps)):
            group, step = of_group.get(position), program.steps[position]
            if group is not None:
                if position == group.positions[-1]:
                    found._read(position, group.reads)
                continue
            is_read = any(index in found.readers for index in step.outputs if index)
            view = told.array(step.outputs[0]) if told.is_view(step) else None
            if view is not None and len(view.steps) > 1:
                if is_read:
                    found.views[position] = view
                    found._read(position, sorted(view.values))
            elif is_read or (view is None and (step.op_type not in SHAPES or step.domain)):
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

    def fused(self, told: Expressions) -> Iterator[FusedSteps]:
        """The views as steps."""
        for position, view in self.views.items():
            ranks: Mapping[int, int] = {value: told.rank(value) for value in sorted(view.values)}
            kernel = ViewKernel(function_of(ranks, view.text, sorted(view.reshaped)))
            repeated = tuple(sorted(view.steps - {position}))
            yield FusedSteps((position,), kernel, tuple(ranks), self.program.steps[position].outputs, repeated)
