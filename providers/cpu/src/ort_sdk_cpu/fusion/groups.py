"""Which steps of a program become one: element-wise ones of the same shape, joined along the values between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, ProgramValue, TensorElementType

from .chain import Chain, ChainStep
from .instructions import RULES
from .loops import OUTER_DIMENSIONS
from .operation import ElementOperation

__all__ = ["Group", "groups_of"]

MAX_STEPS = 256
MAX_INPUTS = 160

MIN_ELEMENTS_ALONE = 1 << 16
"""Elements from which one step by itself gains, as NumPy uses one thread."""

_TYPES = {"f": TensorElementType.FLOAT, "b": TensorElementType.BOOL}
_EXPONENTS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that become one."""

    positions: tuple[int, ...]
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Numbers of values of the program."""
    chain: Chain
    cost: int
    """Work per element, in sums."""


@dataclass(slots=True)
class _Growing:
    positions: list[int]
    shape: tuple[int, ...]


def groups_of(program: FusibleProgram) -> Iterator[Group]:
    """The groups worth making."""
    finder = _Finder(program)
    for growing in finder.grown():
        group = finder.finished(growing)
        if len(group.positions) > 1 or int(np.prod(group.shape)) >= MIN_ELEMENTS_ALONE:
            yield group


class _Finder:
    def __init__(self, program: FusibleProgram) -> None:
        self._program = program
        self._operations = {position: _operation(step, program) for position, step in program.steps.items()}
        self._maker: dict[int, _Growing] = {}
        """Value → the group that makes it."""

    def grown(self) -> list[_Growing]:
        """Groups, each step in the one it can join."""
        groups: list[_Growing] = []
        for position, step in self._program.steps.items():
            if self._operations[position] is None:
                continue
            shape = self._program.values[step.outputs[0]].shape
            joined = _Growing([position], shape)
            for other in self._makers(step):
                if other.shape == shape and self._can_join(other, joined):
                    groups.remove(other)
                    joined = _Growing(sorted((*other.positions, *joined.positions)), shape)
            groups.append(joined)
            for member in joined.positions:
                self._maker[self._program.steps[member].outputs[0]] = joined
        return groups

    def _makers(self, step: FusibleStep) -> list[_Growing]:
        """Groups that make a step's inputs, each once."""
        found: list[_Growing] = []
        for index in step.inputs:
            maker = self._maker.get(index)
            if maker is not None and not any(maker is other for other in found):
                found.append(maker)
        return found

    def _can_join(self, group: _Growing, other: _Growing) -> bool:
        """Whether nothing outside reads a value of the steps before the last of them has run."""
        positions = {*group.positions, *other.positions}
        if len(positions) > MAX_STEPS:
            return False
        last = max(positions)
        return len(self._inputs(positions)) <= MAX_INPUTS and all(
            reader in positions or reader > last
            for position in positions
            for reader in self._program.readers.get(self._program.steps[position].outputs[0], ())
        )

    def _inputs(self, positions: set[int]) -> list[int]:
        steps = [self._program.steps[position] for position in sorted(positions)]
        made = {step.outputs[0] for step in steps}
        read = dict.fromkeys(index for step in steps for index in step.inputs if index)
        return [index for index in read if index not in made]

    def finished(self, growing: _Growing) -> Group:
        """The group as a chain."""
        program, positions = self._program, growing.positions
        inputs = self._inputs(set(positions))
        made = [program.steps[position].outputs[0] for position in positions]
        number = {index: place for place, index in enumerate((*inputs, *made))}
        steps, cost = [], 1
        for position in positions:
            operation = self._operations[position]
            assert operation is not None  # noqa: S101 - only such steps are in groups
            steps.append(ChainStep(operation, tuple(number.get(index, -1) for index in program.steps[position].inputs)))
            cost += RULES[operation.op_type].cost
        outputs = [index for index in made if any(reader not in positions for reader in program.readers.get(index, ()))]
        types = "".join(_letter(program.values[index]) for index in inputs)
        chain = Chain(types, tuple(steps), tuple(number[index] for index in outputs))
        return Group(tuple(positions), growing.shape, tuple(inputs), tuple(outputs), chain, cost)


def _letter(value: ProgramValue) -> str:
    return "f" if value.element_type is TensorElementType.FLOAT else "b"


def _operation(step: FusibleStep, program: FusibleProgram) -> ElementOperation | None:
    """A step as a part of a chain; None if it is none, by its kernel or by its types."""
    operation: ElementOperation | None = getattr(step.kernel, "element_operation", None)
    if operation is None or len(step.outputs) != 1 or not step.outputs[0] or not step.inputs:
        return None
    rule = RULES[operation.op_type]
    for place, index in enumerate(step.inputs):
        wanted = _TYPES[rule.inputs[min(place, len(rule.inputs) - 1)]]
        if index and (index not in program.values or program.values[index].element_type is not wanted):
            return None
    output = program.values.get(step.outputs[0])
    if output is None or output.element_type is not _TYPES[rule.output] or not _has_loops(output.shape) or not step.inputs[0]:
        return None
    return _power(operation, step.inputs, program) if operation.op_type == "Pow" else operation


def _power(operation: ElementOperation, inputs: Sequence[int], program: FusibleProgram) -> ElementOperation | None:
    """Powers by small whole constants."""
    constant: Any = program.values[inputs[1]].constant
    if constant is None or constant.size != 1 or float(constant.reshape(())) not in _EXPONENTS:
        return None
    return replace(operation, attributes={"exponent": int(constant.reshape(()))})


def _has_loops(shape: Sequence[int]) -> bool:
    """Whether a kernel's loops go over an array of this shape."""
    return 0 not in shape and sum(size != 1 for size in shape) <= OUTER_DIMENSIONS + 1
