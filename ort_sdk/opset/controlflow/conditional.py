"""If."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, KernelInfo, OpKernel, Subgraph
from ort_sdk.api.step_expansion import AbstractResult, AbstractValue, ExpandingProgram
from ort_sdk.opset.definition import operator

from .bodies import is_true, owned
from .expanding import chosen

MAX_CHOSEN_STEPS = 32
"""Steps of both branches up to which a program takes both."""
MAX_CHOSEN_ELEMENTS = 1 << 12
"""Elements of their results up to which it does: so many cost less than going by the condition."""

NEVER_FAIL = frozenset(
    {
        *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Constant", "Cos", "Equal", "Erf", "Exp", "Floor", "Greater"),
        *(
            "GreaterOrEqual",
            "Identity",
            "Less",
            "LessOrEqual",
            "Max",
            "Min",
            "Mul",
            "Neg",
            "Not",
            "Or",
            "Relu",
            "Round",
            "Sigmoid",
        ),
        *("Sign", "Sin", "Softplus", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze", "Where", "Xor"),
        *("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceLength", "ConcatFromSequence"),
    }
)
"""Operators that give a result whatever elements they get, once shapes suit."""
FAIL_BY_PARAMETERS = frozenset({"Expand", "Gather", "Reshape", "SequenceAt", "SequenceErase", "Slice"})
"""Operators that do, once shapes and all inputs but the first suit."""


@operator("If", host_inputs=(0,), shape_inputs=None, deterministic=False, any_type=True, host_only=True, hands_on_values=True)
class If(OpKernel):
    """Outputs of the branch that the condition chooses; both see the same captured values."""

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info = info
        self._xp = xp
        self._branches = (info.subgraph("else_branch"), info.subgraph("then_branch"))

    def compute(self, condition: HostArray, *captured: Array) -> tuple[Array, ...]:
        branch = self.select_body(condition)
        return tuple(owned(self._xp, branch, branch((), captured)))

    def select_body(self, condition: HostArray) -> Subgraph:
        """The branch a condition chooses, for the host to run instead of this kernel when the condition never changes."""
        return self._branches[is_true(self._info, self._xp, condition)]

    def abstract_eval(self, program: ExpandingProgram, inputs: Sequence[AbstractValue]) -> AbstractResult | None:
        """What holds for both branches, if one is chosen for good, or both can be taken."""
        both = [program.abstract_eval(branch, (), inputs[1:]) for branch in self._branches]
        operators = both[0].operators | both[1].operators
        steps = both[0].steps + both[1].steps
        is_complete = both[0].is_complete and both[1].is_complete
        outputs = tuple(first & second for first, second in zip(both[0].outputs, both[1].outputs, strict=True))
        if inputs[0].value_known:
            return AbstractResult(outputs, is_complete, steps, operators)
        if not inputs[0].shape or not is_complete or steps > MAX_CHOSEN_STEPS or not all(map(_never_fails, operators)):
            return None
        chosen_by_run = tuple(AbstractValue(shape_known=known.shape_known) for known in outputs)
        return AbstractResult(chosen_by_run, is_complete, steps + len(outputs), operators | {("Where", False)})

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> Sequence[int] | None:
        """Both branches, if they are small, and their results chosen from."""
        if self.abstract_eval(program, [program.abstract_value(value) for value in inputs]) is None:
            return None
        return program.attempt(lambda: self._take_both(program, inputs), MAX_CHOSEN_ELEMENTS)

    def _take_both(self, program: ExpandingProgram, inputs: Sequence[int]) -> list[int] | None:
        if program.value(inputs[0]).size != 1:
            return None
        results = [program.take_body(branch, (), inputs[1:]) for branch in self._branches]
        found = [self._either(program, inputs[0], then, other) for other, then in zip(*results, strict=True)]
        return [value for value in found if value is not None] if None not in found else None

    def _either(self, program: ExpandingProgram, condition: int, then: int, other: int) -> int | None:
        """A value chosen from two; None if they are not alike."""
        if then == other:
            return then
        first, second = program.sequence(then), program.sequence(other)
        if first is not None and second is not None and len(first) == len(second):
            members = [self._either(program, condition, *pair) for pair in zip(first, second, strict=True)]
            return None if None in members else program.make_sequence([member for member in members if member is not None])
        arrays = [program.value(value) for value in (then, other)]
        same_shape = all(isinstance(array, np.ndarray) for array in arrays) and len({(a.shape, a.dtype) for a in arrays}) == 1
        return chosen(program, self._info, self._xp, condition, (then, other)) if same_shape else None


def _never_fails(operator: tuple[str, bool]) -> bool:
    op_type, is_given = operator
    return op_type in NEVER_FAIL or (is_given and op_type in FAIL_BY_PARAMETERS)
