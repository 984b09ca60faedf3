"""A trace: values and steps of one recorded run, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.step_expansion import UNKNOWN, AbstractValue, ExpandedKernel
from ort_sdk.plan import ABSENT, ExecutionPlan, Step
from ort_sdk.run.executor import raise_step_error, require_outputs, store_outputs
from ort_sdk.run.program.guards import BoundedNumber
from ort_sdk.run.program.specialisation import ProgramStep

from .abstract_values import ALL_KNOWN, abstract_eval_kernel
from .device_outlines import DeviceOutlines
from .lifetimes import Lifetimes
from .outlines import Outlines

__all__ = ["LISTING", "Trace"]


LISTING = ExpandedKernel(lambda *tensors: list(tensors))
"""Operator that makes a sequence value where a step reads the sequence itself, not only its tensors."""


@dataclass(slots=True)
class Trace:
    """A program in the making: values and steps of one run, and the abstract value of each."""

    terminate: Any = None
    may_expand: bool = True
    """Whether kernels may be unrolled and inlined."""
    values: list[Any] = field(default_factory=list)
    """As the run made them, by number."""
    known: list[AbstractValue] = field(default_factory=list)
    """What holds of them in every run of the signature."""
    steps: list[ProgramStep] = field(default_factory=list)
    made_by: dict[int, int] = field(default_factory=dict)
    """Value → position of the step that makes it."""
    aliases: dict[int, int] = field(default_factory=dict)
    """Value that is another name of an earlier one → that one."""
    sequences: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Sequence that exists as its tensors only, as long as no step reads it itself → the tensors."""
    original: set[int] = field(default_factory=set)
    """Constants of the plan, which cost the program nothing."""
    entered: dict[int, int] = field(default_factory=dict)
    """Identity of a plan → offset of its first frame."""
    expanded_steps: int = 0
    """Steps that were unrolled and inlined from control flow."""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    outlines: Outlines = field(default_factory=Outlines)
    device_outlines: DeviceOutlines = field(default_factory=DeviceOutlines)
    bounded: dict[int, BoundedNumber] = field(default_factory=dict)
    """Value → the bounds that a guard before has checked."""
    is_bounded: bool = False
    """Whether the outputs of the step that is launched have the shapes of this run in all others, by such a guard."""
    folded_bytes: int = 0
    """Bytes of known values that no later step reads, and that are kept since the program's steps may."""

    def enter(self, plan: ExecutionPlan) -> int:
        """Append a plan's frame; returns its offset."""
        offset = len(self.values)
        self.values.extend(plan.new_frame())
        self.known.extend([UNKNOWN] * len(plan.value_names))
        self.known[offset + ABSENT] = ALL_KNOWN
        first = self.entered.setdefault(id(plan), offset)
        for index in plan.constants:
            self.known[offset + index] = ALL_KNOWN
            if first == offset:
                self.original.add(offset + index)
            else:
                self.aliases[offset + index] = first + index
        return offset

    def add(self, value: Any, known: AbstractValue) -> int:
        """A value of no plan's."""
        self.values.append(value)
        self.known.append(known)
        return len(self.values) - 1

    def rename(self, name: int, value: int) -> None:
        """Make ``name`` stand for a value that exists already."""
        value = self.aliases.get(value, value)
        self.aliases[name] = value
        self.values[name] = self.values[value]
        self.known[name] = self.known[value]
        self.lifetimes.name(name, value)

    def launch(self, step: Step, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        """Run a step as it is, and record it."""
        resolved = tuple([self.aliases.get(index, index) for index in inputs])
        self.need_lists(resolved)
        try:
            result = step.compute(*[self.values[index] for index in inputs])
            require_outputs(result, step.outputs)
        except Exception as error:  # noqa: BLE001 - a kernel may raise anything; it is named and raised again
            raise_step_error(error, step, [self.values[index] for index in inputs])
        store_outputs(self.values, outputs, result)
        absent = [index for index, own in zip(outputs, step.outputs, strict=True) if own == ABSENT]
        abstract = abstract_eval_kernel(step.kernel, [self.known[index] for index in inputs])
        if self.is_bounded:
            abstract = AbstractValue(shape_known=True, value_known=abstract.value_known)
        for index in outputs:
            self.known[index] = abstract
            self.made_by[index] = len(self.steps)
            self.outlines.draw(index, self.values[index], [(read, self.values[read]) for read in resolved])
        self.device_outlines.draw(step, resolved, outputs, self.values)
        for index in absent:
            self.values[index] = None
            self.known[index] = ALL_KNOWN
        results = result if type(result) is tuple else (result,)
        self.steps.append(
            ProgramStep(
                step,
                resolved,
                outputs,
                returns_tuple=type(result) is tuple,
                may_return_scalar=not abstract.shape_known or any(isinstance(value, np.generic) for value in results),
                outputs_known=abstract.shape_known,
            )
        )

    def need_lists(self, values: Sequence[int]) -> None:
        """Insert steps that make those values that are sequences without a step."""
        for index in values:
            members = self.sequences.get(index)
            if members is not None and index not in self.made_by and not self.known[index].value_known:
                made = Step(LISTING.compute, members, (index,), (), LISTING, "SequenceConstruct", "", "", "", CPU_DEVICE)
                self.made_by[index] = len(self.steps)
                is_known = self.known[index].shape_known
                self.steps.append(ProgramStep(made, members, (index,), False, False, outputs_known=is_known))

    def elements_made_since(self, steps: int) -> int:
        """Elements of the arrays that the steps after the first so many make."""
        made = [self.values[index] for launched in self.steps[steps:] for index in launched.outputs]
        return sum(value.size for value in made if isinstance(value, np.ndarray))

    def undo(self, values: int, steps: int) -> None:
        """Forget the values and the steps after the first so many."""
        del self.values[values:], self.known[values:], self.steps[steps:]
        for table in (self.made_by, self.aliases, self.sequences):
            for index in [index for index in table if index >= values]:
                del table[index]
        self.lifetimes.forget_from(values)
        self.outlines.forget_from(values)
        self.device_outlines.forget_from(values)
        self.original = {index for index in self.original if index < values}
        self.entered = {plan: offset for plan, offset in self.entered.items() if offset < values}
