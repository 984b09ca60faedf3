"""Steps on whole numbers and truth values in runs whose shapes vary, as of masks and positions: lines of one function.

Each takes NumPy about a microsecond, and as long again to be called by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep

from .expressions import Expressions, Numbers
from .scalar_code import LIGHT_TYPES, LightGroup, numbers_of_steps, written

__all__ = ["LightSteps"]

LIGHT = frozenset({
    *("Add", "And", "Cast", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div", "Equal", "Expand", "Flatten", "Gather"),
    *("GatherND", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Range"),
    *("Reshape", "Shape", "Sin", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
})  # fmt: skip
"""Operators whose steps may be lines."""
MOST_CONSTANT = 1 << 12
"""Elements of a constant that lines may take from: rows of larger ones are much work."""


class LightSteps:
    """The steps of a program that may be lines.

    Args:
        program: whose shapes vary.
        told: its expressions.
    """

    def __init__(self, program: FusibleProgram, told: Expressions) -> None:
        self._program, self._told = program, told
        self.positions: set[int] = set()
        for position, step in program.steps.items():
            if self._is_light(step):
                self.positions.add(position)

    def is_computed(self, position: int) -> bool:
        """Whether a step is light, and what it gives does not follow from shapes."""
        return position in self.positions and self._numbers(self._program.steps[position].outputs[0]) is None

    def reads(self, position: int) -> tuple[int, ...]:
        """Values that a line is worked out from."""
        found: set[int] = set()
        for index in self._needed(position):
            numbers = self._numbers(index)
            found |= {index} if numbers is None else numbers.values
        return tuple(sorted(found))

    def fused(
        self, positions: Sequence[int], chains: Sequence[FusedSteps], readers: Mapping[int, Sequence[int]]
    ) -> Iterator[FusedSteps]:
        """Steps that follow each other as one, as many as nothing in their midst reads.

        Args:
            positions: steps that are left.
            chains: those of them that are one loop over many elements.
            readers: value → positions where it is read.
        """
        by_end = {chain.positions[-1]: chain for chain in chains}
        within = {position for chain in chains for position in chain.positions}
        group = LightGroup()
        for position in positions:
            chain = by_end.get(position)
            members = (position,) if chain is None else chain.positions
            made = [index for own in members for index in self._program.steps[own].outputs]
            if (position in within and chain is None) or not any(index in readers for index in made):
                continue
            if group.positions and any(own < position for own in group.readers.difference(group.positions)):
                yield from self._finished(group, readers)
                group = LightGroup()
            group.units.append((members, chain))
            group.positions.update(members)
            group.readers.update(reader for index in made for reader in readers.get(index, ()))
        yield from self._finished(group, readers)

    def _finished(self, group: LightGroup, readers: Mapping[int, Sequence[int]]) -> Iterator[FusedSteps]:
        if group.positions:
            fused = written(self._program, self._told, group, readers)
            if len(fused.positions) > 1 or fused.repeated:
                yield fused

    def _needed(self, position: int) -> list[int]:
        """The step's inputs but constants; its output where that follows from shapes."""
        step = self._program.steps[position]
        if self._numbers(step.outputs[0]) is not None:
            return [step.outputs[0]]
        return [index for index in step.inputs if index and self._told.constant(index) is None]

    def _numbers(self, value: int) -> Numbers | None:
        return numbers_of_steps(self._told, value)

    def _is_light(self, step: FusibleStep) -> bool:
        if step.op_type not in LIGHT or step.domain or len(step.outputs) != 1 or not step.outputs[0]:
            return False
        if any(index not in self._program.values for index in (*step.outputs, *filter(None, step.inputs))):
            return False
        if self._numbers(step.outputs[0]) is not None:
            return True
        return all(self._is_light_value(index) for index in step.inputs if index)

    def _is_light_value(self, value: int) -> bool:
        shown, maker = self._program.values[value], self._told.makers.get(value)
        constant: Any = shown.constant
        if constant is not None:
            return bool(constant.size <= MOST_CONSTANT)
        return maker in self.positions if maker is not None else shown.element_type in LIGHT_TYPES
