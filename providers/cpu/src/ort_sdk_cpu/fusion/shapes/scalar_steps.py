"""Steps on small integer and boolean arrays in runs of dynamic shapes, as of masks and positions: one generated function.

Each takes NumPy about a microsecond, and as long again to be called as a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep

from .expressions import Expressions, SymbolicIntegers
from .scalar_code import SCALAR_TYPES, ScalarGroup, computed_integers, generate

__all__ = ["ScalarSteps"]

SCALAR_OPERATORS = frozenset({
    *("Add", "And", "Cast", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div", "Equal", "Expand", "Flatten", "Gather"),
    *("GatherND", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Range"),
    *("Reshape", "Shape", "Sin", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
})  # fmt: skip
"""Operators whose steps may be generated code."""
MAX_CONSTANT = 1 << 12
"""Elements of a constant that the code may gather from: rows of larger ones, as of embeddings, are work for tasks."""


class ScalarSteps:
    """The steps of a program that may be generated code.

    Args:
        program: whose shapes vary.
        expressions: its expressions.
    """

    def __init__(self, program: FusibleProgram, expressions: Expressions) -> None:
        self._program, self._expressions = program, expressions
        self.positions: set[int] = set()
        for position, step in program.steps.items():
            if self._is_scalar(step):
                self.positions.add(position)

    def is_computed(self, position: int) -> bool:
        """Whether a step is scalar, and its result is not computed from shapes."""
        return position in self.positions and self._integers(self._program.steps[position].outputs[0]) is None

    def reads(self, position: int) -> tuple[int, ...]:
        """Values that a step's code reads."""
        found: set[int] = set()
        for index in self._needed(position):
            integers = self._integers(index)
            found |= {index} if integers is None else integers.values
        return tuple(sorted(found))

    def fused(
        self, positions: Sequence[int], chains: Sequence[FusedSteps], readers: Mapping[int, Sequence[int]]
    ) -> Iterator[FusedSteps]:
        """Steps that follow each other as one function, as long as no other step reads one of them before the last.

        Args:
            positions: steps that are left.
            chains: those of them that are one loop over many elements.
            readers: value → positions where it is read.
        """
        by_end = {chain.positions[-1]: chain for chain in chains}
        within = {position for chain in chains for position in chain.positions}
        group = ScalarGroup()
        for position in positions:
            chain = by_end.get(position)
            members = (position,) if chain is None else chain.positions
            made = [index for own in members for index in self._program.steps[own].outputs]
            if (position in within and chain is None) or not any(index in readers for index in made):
                continue
            if group.positions and any(own < position for own in group.readers.difference(group.positions)):
                yield from self._finished(group, readers)
                group = ScalarGroup()
            group.units.append((members, chain))
            group.positions.update(members)
            group.readers.update(reader for index in made for reader in readers.get(index, ()))
        yield from self._finished(group, readers)

    def _finished(self, group: ScalarGroup, readers: Mapping[int, Sequence[int]]) -> Iterator[FusedSteps]:
        if group.positions:
            fused = generate(self._program, self._expressions, group, readers)
            if len(fused.positions) > 1 or fused.repeated:
                yield fused

    def _needed(self, position: int) -> list[int]:
        """The step's inputs but constants; its output where that follows from shapes."""
        step = self._program.steps[position]
        if self._integers(step.outputs[0]) is not None:
            return [step.outputs[0]]
        return [index for index in step.inputs if index and self._expressions.constant(index) is None]

    def _integers(self, value: int) -> SymbolicIntegers | None:
        return computed_integers(self._expressions, value)

    def _is_scalar(self, step: FusibleStep) -> bool:
        if step.op_type not in SCALAR_OPERATORS or step.domain or len(step.outputs) != 1 or not step.outputs[0]:
            return False
        if any(index not in self._program.values for index in (*step.outputs, *filter(None, step.inputs))):
            return False
        if self._integers(step.outputs[0]) is not None:
            return True
        return all(self._is_scalar_value(index) for index in step.inputs if index)

    def _is_scalar_value(self, value: int) -> bool:
        shown, maker = self._program.values[value], self._expressions.makers.get(value)
        constant: Any = shown.constant
        if constant is not None:
            return bool(constant.size <= MAX_CONSTANT)
        return maker in self.positions if maker is not None else shown.element_type in SCALAR_TYPES
