"""Inlining and unrolling: what a kernel may replace its step by in a trace (the contract's ``ExpandingProgram``).

The body of an If whose condition is known, or of a Loop or Scan whose trips are, is traced step by step like the main graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ort_sdk.api import Array, Fail, FusibleStep, Subgraph
from ort_sdk.api.step_expansion import AbstractResult, AbstractValue
from ort_sdk.api.stopping import STOPPED
from ort_sdk.plan import ExecutionPlan, Step
from ort_sdk.run.executor import BodyRunner

from .abstract_values import ALL_KNOWN, abstract_eval_body
from .trace import Trace

__all__ = ["MAX_EXPANDED_STEPS", "Inliner"]

MAX_EXPANDED_STEPS = 1 << 11
"""Steps of all bodies that are inlined and unrolled in one program: each takes some tenths of a millisecond to make."""


class Inliner:
    """Replaces a step of a trace by others.

    Args:
        trace: of the program.
        step: the step.
        run: traces the steps of a plan whose frame is there, from the offset of the frame.
    """

    def __init__(self, trace: Trace, step: Step, run: Callable[[ExecutionPlan, int], None]) -> None:
        self._trace = trace
        self._step = step
        self._run = run

    def abstract_value(self, value: int) -> AbstractValue:
        return self._trace.known[value]

    def knowledge(self, value: int) -> AbstractValue:
        """The old name of ``abstract_value``."""
        return self.abstract_value(value)

    def value(self, value: int) -> Any:
        return self._trace.values[value]

    def sequence(self, value: int) -> Sequence[int] | None:
        return self._trace.sequences.get(value)

    def maker(self, value: int) -> FusibleStep | None:
        position = self._trace.made_by.get(value)
        if position is None:
            return None
        launched = self._trace.steps[position]
        step = launched.step
        if launched.outputs[0] != value:
            return None
        return FusibleStep(step.kernel, step.op_type, launched.inputs, launched.outputs, step.domain, step.attributes)

    def constant(self, array: Array) -> int:
        return self._trace.add(array, ALL_KNOWN)

    def make_sequence(self, tensors: Sequence[int]) -> int:
        trace = self._trace
        members = tuple(trace.aliases.get(tensor, tensor) for tensor in tensors)
        shape_known = all(trace.known[member].shape_known for member in members)
        value_known = all(trace.known[member].value_known for member in members)
        made = trace.add([trace.values[member] for member in members], AbstractValue(shape_known, value_known))
        trace.sequences[made] = members
        trace.lifetimes.join(made, members)
        return made

    def launch(
        self,
        op_type: str,
        kernel: Any,
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
        *,
        provider: Any = None,
    ) -> int:
        made = self._trace.add(None, AbstractValue())
        step = self._step
        launched = Step(
            compute=kernel.compute,
            inputs=tuple(inputs),
            outputs=(made,),
            frees=(),
            kernel=kernel,
            op_type=op_type,
            domain="",
            node=step.node,
            provider=step.provider if provider is None else provider.name,
            device=step.device if provider is None else provider.device,
            attributes=attributes or {},
        )
        self._trace.launch(launched, tuple(inputs), (made,))
        return made

    def take_body(self, body: Subgraph, inputs: Sequence[int], captured: Sequence[int]) -> list[int]:
        plan = _runner(body).plan
        trace = self._trace
        offset = trace.enter(plan)
        for feed, value in zip(plan.feeds, inputs, strict=True):
            trace.rename(offset + feed.index, value)
        for position, index in plan.captures:
            trace.rename(offset + index, captured[position])
        count = len(trace.steps)
        self._run(plan, offset)
        trace.expanded_steps += len(trace.steps) - count
        results = [offset + fetch.index for fetch in plan.fetches]
        return [trace.aliases.get(result, result) for result in results]

    def abstract_eval(self, body: Subgraph, inputs: Sequence[AbstractValue], captured: Sequence[AbstractValue]) -> AbstractResult:
        return abstract_eval_body(self, _runner(body).plan, inputs, captured)

    def foresee(self, body: Subgraph, inputs: Sequence[AbstractValue], captured: Sequence[AbstractValue]) -> AbstractResult:
        """The old name of ``abstract_eval``."""
        return self.abstract_eval(body, inputs, captured)

    def has_room_for(self, steps: int) -> bool:
        return self._trace.expanded_steps + steps <= MAX_EXPANDED_STEPS

    def attempt(self, action: Callable[[], Sequence[int] | None], max_elements: int | None = None) -> Sequence[int] | None:
        trace = self._trace
        values, steps = len(trace.values), len(trace.steps)
        try:
            found = action()
        except Exception as error:
            if isinstance(error, Fail) and STOPPED in error.text:
                raise
            found = None
        if found is not None and (max_elements is None or trace.elements_made_since(steps) <= max_elements):
            return found
        trace.undo(values, steps)
        return None


def _runner(body: Subgraph) -> BodyRunner:
    if not isinstance(body, BodyRunner):
        raise TypeError(f"a body of the host's own is needed; got {type(body).__name__}")
    return body
