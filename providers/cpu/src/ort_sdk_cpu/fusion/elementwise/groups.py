"""Which steps of a program are fused: element-wise ones of the same shape, along the values between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.api import FusibleProgram, FusibleStep, ProgramValue
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.element_operation import ElementOperation
from ort_sdk_cpu.memory.strides import OUTER_DIMENSIONS
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .ir import Chain, ChainStep
from .rules import rule_name, rule_of
from .types import TYPE_CODES

__all__ = ["Group", "groups_of"]

MAX_STEPS = 256
MAX_INPUTS = 160

MIN_ELEMENTS_ALONE = 1 << 16
"""Elements from which one step by itself gains, as NumPy uses one thread. With fewer it gains only where its call can be joined
with others."""

_EXPONENTS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that are fused into one chain."""

    positions: tuple[int, ...]
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Numbers of values of the program."""
    chain: Chain
    cost: int
    """Work per element, in additions."""

    @property
    def is_small_step(self) -> bool:
        """Whether it is one step that gains nothing by itself."""
        return len(self.positions) == 1 and math.prod(self.shape) < MIN_ELEMENTS_ALONE


@dataclass(slots=True)
class _GrowingGroup:
    """A group that further steps may be fused into."""

    shape: tuple[int, ...]
    positions: list[int]
    inputs: dict[int, None]
    """Values it reads and does not make, in the order in which it reads them."""
    made: set[int]
    readers: set[int]
    """Positions of steps outside that read its values."""


def groups_of(program: FusibleProgram, accepts: Callable[[Chain], bool] | None = None) -> list[Group]:
    """All steps that can be part of a chain, in groups.

    Args:
        program: its steps are grouped; readers and values may be of more steps.
        accepts: whether a chain may be a group's; steps that are in none that may are left out. Any may if None.
    """
    finder = _Finder(program, accepts)
    found = (finder.finished(growing) for growing in finder.grown())
    return [group for group in found if accepts is None or accepts(group.chain)]


class _Finder:
    def __init__(self, program: FusibleProgram, accepts: Callable[[Chain], bool] | None) -> None:
        self._program = program
        self._accepts = accepts
        self._operations = {position: _operation(step, program) for position, step in program.steps.items()}
        self._maker: dict[int, _GrowingGroup] = {}
        """Value → the group that makes it."""

    def grown(self) -> list[_GrowingGroup]:
        """Groups, each step in the one it can join."""
        groups: dict[int, _GrowingGroup] = {}
        for position, step in self._program.steps.items():
            if self._operations[position] is None:
                continue
            joined = self._alone(position, step)
            for other in self._makers(step):
                together = _joined(other, joined) if _can_join(other, joined, position) else None
                if together is not None and (self._accepts is None or self._accepts(self.finished(together).chain)):
                    joined = together
                    del groups[id(other)]
            groups[id(joined)] = joined
            self._maker.update(dict.fromkeys(joined.made, joined))
        return list(groups.values())

    def _alone(self, position: int, step: FusibleStep) -> _GrowingGroup:
        output = step.outputs[0]
        inputs = dict.fromkeys(index for index in step.inputs if index)
        readers = set(self._program.readers.get(output, ()))
        return _GrowingGroup(self._program.values[output].shape, [position], inputs, {output}, readers)

    def _makers(self, step: FusibleStep) -> list[_GrowingGroup]:
        """Groups that make a step's inputs, each once."""
        found = {id(maker): maker for index in step.inputs if (maker := self._maker.get(index)) is not None}
        return list(found.values())

    def finished(self, growing: _GrowingGroup) -> Group:
        """The group as a chain."""
        program, positions = self._program, growing.positions
        inputs = list(growing.inputs)
        made = [program.steps[position].outputs[0] for position in positions]
        numbers = {index: number for number, index in enumerate((*inputs, *made))}
        steps, cost = [], 1
        for position in positions:
            operation = self._operations[position]
            assert operation is not None  # noqa: S101 - only such steps are in groups
            steps.append(ChainStep(operation, tuple(numbers.get(index, -1) for index in program.steps[position].inputs)))
            cost += rule_of(operation.op_type).cost
        outputs = [index for index in made if not growing.readers.isdisjoint(program.readers.get(index, ()))]
        types = "".join(_type_code(program.values[index]) or "" for index in inputs)
        chain = Chain(types, tuple(steps), tuple(numbers[index] for index in outputs))
        return Group(tuple(positions), growing.shape, tuple(inputs), tuple(outputs), chain, cost)


def _can_join(group: _GrowingGroup, step: _GrowingGroup, position: int) -> bool:
    """Whether nothing outside reads a value of the group before the step at ``position``, its last, has run."""
    return (
        group.shape == step.shape
        and len(group.positions) + len(step.positions) <= MAX_STEPS
        and len(group.inputs) + len(step.inputs) <= MAX_INPUTS
        and all(reader >= position for reader in group.readers)
    )


def _joined(group: _GrowingGroup, step: _GrowingGroup) -> _GrowingGroup:
    """One group of both; the step's values are read by later steps only."""
    made = group.made | step.made
    inputs = dict.fromkeys(index for index in (*group.inputs, *step.inputs) if index not in step.made and index not in made)
    readers = (group.readers | step.readers).difference(step.positions)
    return _GrowingGroup(group.shape, sorted((*group.positions, *step.positions)), inputs, made, readers)


def _type_code(value: ProgramValue | None) -> str | None:
    """Code of a value's type; None where chains have no such type, or the processor no instruction for it."""
    code = None if value is None or value.element_type is None else TYPE_CODES.get(value.element_type)
    return None if code == "h" and instruction_set() < InstructionSet.AVX2 else code


def _operation(step: FusibleStep, program: FusibleProgram) -> ElementOperation | None:
    """A step as a part of a chain, under the name of its rule; None if it is none, by its kernel or by its types."""
    operation: ElementOperation | None = getattr(step.kernel, "element_operation", None)
    if operation is None or len(step.outputs) != 1 or not step.outputs[0] or not step.inputs or not step.inputs[0]:
        return None
    output = program.values.get(step.outputs[0])
    inputs = [_type_code(program.values.get(index)) if index else "" for index in step.inputs]
    result = _type_code(output)
    if output is None or result is None or None in inputs or not _has_loops(output.shape):
        return None
    codes = [code or "" for code in inputs]
    name = rule_name(operation.op_type, codes[0], result)
    if name is None or not _suits(rule_of(name).inputs, codes):
        return None
    return _power(operation, step.inputs, program) if operation.op_type == "Pow" else replace(operation, op_type=name)


def _suits(wanted: str, codes: Sequence[str]) -> bool:
    """Whether inputs have the types of a rule, the last of which is that of all further ones. Absent ones have none."""
    return all(code in {"", wanted[min(index, len(wanted) - 1)]} for index, code in enumerate(codes))


def _power(operation: ElementOperation, inputs: Sequence[int], program: FusibleProgram) -> ElementOperation | None:
    """Powers by small whole constants."""
    constant: Any = program.values[inputs[1]].constant
    if constant is None or constant.size != 1 or float(constant.reshape(())) not in _EXPONENTS:
        return None
    return replace(operation, attributes={"exponent": int(constant.reshape(()))})


def _has_loops(shape: Sequence[int]) -> bool:
    """Whether a kernel's loops go over an array of this shape."""
    return 0 not in shape and sum(size != 1 for size in shape) <= OUTER_DIMENSIONS + 1
