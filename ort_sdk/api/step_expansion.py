"""Expanding steps: how a kernel unrolls, inlines or replaces itself while a program is traced.

A Loop whose trips are known by then is as many copies of its body; a sequence whose structure is known is the tensors in it. What
is left needs neither a body's runner nor a list, and its steps can be bound, fused and joined with those around it.

A kernel that can has ``expand(program, inputs)``: it gets the numbers of its inputs' values, captured ones after its own, and
gives a number for each output, or None to be run as it is. One that holds bodies has ``abstract_eval(program, inputs)``, too: the
abstract values of its outputs, before anything runs. Until the next minor version it may be called ``foretell``, and what is
called ``AbstractValue``, ``AbstractResult``, ``abstract_value`` and ``abstract_eval`` here keeps its old name as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .data_classes import NamedTuple
from .kernel import Array, Compute, OpKernel, Subgraph
from .step_fusion import FusibleStep

__all__ = ["UNKNOWN", "AbstractResult", "AbstractValue", "ExpandedKernel", "ExpandingProgram", "Foresight", "Knowledge"]


class AbstractValue(NamedTuple):
    """What is known of a value from the signature of a run's inputs, as in JAX's partial evaluation: known, or not."""

    shape_known: bool = False
    """Its shape; of a sequence, how many tensors it has, and their shapes."""
    value_known: bool = False
    """Its contents."""

    def __and__(self, other: AbstractValue) -> AbstractValue:
        """What is known of a value that is one or the other."""
        return AbstractValue(self.shape_known and other.shape_known, self.value_known and other.value_known)

    @property
    def shape(self) -> bool:
        """The old name of ``shape_known``."""
        return self.shape_known

    @property
    def contents(self) -> bool:
        """The old name of ``value_known``."""
        return self.value_known


UNKNOWN = AbstractValue()


class AbstractResult(NamedTuple):
    """What abstract evaluation of some steps gives: what would be known if they ran."""

    outputs: tuple[AbstractValue, ...]
    is_complete: bool
    """Whether the shape of every value would be."""
    steps: int
    """How many steps would be left to run, at most."""
    operators: frozenset[tuple[str, bool]]
    """Their operators, and whether the contents of all inputs but the first would be known."""


class ExpandingProgram(Protocol):
    """A program in the making, as seen by a kernel that replaces its own step. Values are numbers; 0 is the absent one."""

    def abstract_value(self, value: int) -> AbstractValue:
        """What is known of a value."""

    def value(self, value: int) -> Any:
        """What a value is in the run that is recorded: only what is known of it holds for others."""

    def sequence(self, value: int) -> Sequence[int] | None:
        """The tensors of a sequence whose structure is known."""

    def maker(self, value: int) -> FusibleStep | None:
        """The step that makes a value as its first output; None if there is none."""

    def constant(self, array: Array) -> int:
        """A value that is the same in every run."""

    def make_sequence(self, tensors: Sequence[int]) -> int:
        """A sequence of tensors."""

    def launch(
        self,
        op_type: str,
        kernel: Any,
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        provider: Any = None,
    ) -> int:
        """A step with one output, whose kernel has abilities as a node's.

        Args:
            op_type: the operator, of ONNX's domain.
            kernel: computes it.
            inputs: numbers of values, on the provider's device.
            attributes: of the operator.
            provider: ``ExecutionProvider`` of the session whose kernel it is; None for that of the step that is replaced.
        """

    def take_body(self, body: Subgraph, inputs: Sequence[int], captured: Sequence[int]) -> list[int]:
        """The steps of a body, once; gives the values of its outputs."""

    def abstract_eval(self, body: Subgraph, inputs: Sequence[AbstractValue], captured: Sequence[AbstractValue]) -> AbstractResult:
        """What would be known of a body's outputs."""

    def has_room_for(self, steps: int) -> bool:
        """Whether so many more steps are not too many."""

    def attempt(self, action: Callable[[], Sequence[int] | None], max_elements: int | None = None) -> Sequence[int] | None:
        """Do something; undo its steps if it gives None, raises an error or makes too many elements: then the result is None.

        For steps that do nothing but give their outputs.
        """


class ExpandedKernel(OpKernel):
    """Kernel of a step that no node of the model has: its output's shape follows from its inputs'.

    Args:
        compute: computes it.
    """

    deterministic = True
    shape_inputs = ()

    def __init__(self, compute: Compute) -> None:
        self.compute = compute  # type: ignore[method-assign]


Knowledge = AbstractValue
"""The old name of ``AbstractValue``."""
Foresight = AbstractResult
"""The old name of ``AbstractResult``."""
