"""What a kernel may put in the place of its step in a program (the contract's ``ExpandingProgram``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ort_sdk.api import Array, Fail, FusibleStep, Subgraph
from ort_sdk.api.step_expansion import ExpandedKernel, Foresight, Knowledge
from ort_sdk.api.stopping import STOPPED
from ort_sdk.plan import Step

from .executor import BodyRunner
from .knowledge import ALL_KNOWN, foreseen

if TYPE_CHECKING:
    from .specialise import Recorder

__all__ = ["MAX_EXPANDED_STEPS", "Expansion"]

MAX_EXPANDED_STEPS = 1 << 11
"""Steps of all bodies that are put in place of control flow in one program: each takes some tenths of a millisecond to make."""


class Expansion:
    """A step being expanded.

    Args:
        recorder: of the program.
        step: the step.
    """

    def __init__(self, recorder: Recorder, step: Step) -> None:
        self._recorder = recorder
        self._step = step

    def knowledge(self, value: int) -> Knowledge:
        return self._recorder.known[value]

    def value(self, value: int) -> Any:
        return self._recorder.values[value]

    def sequence(self, value: int) -> Sequence[int] | None:
        return self._recorder.sequences.get(value)

    def maker(self, value: int) -> FusibleStep | None:
        position = self._recorder.made_by.get(value)
        if position is None:
            return None
        launched = self._recorder.steps[position]
        step = launched.step
        if launched.outputs[0] != value:
            return None
        return FusibleStep(step.kernel, step.op_type, launched.inputs, launched.outputs, step.domain, step.attributes)

    def constant(self, array: Array) -> int:
        return self._recorder.add(array, ALL_KNOWN)

    def make_sequence(self, tensors: Sequence[int]) -> int:
        recorder = self._recorder
        members = tuple(recorder.aliases.get(tensor, tensor) for tensor in tensors)
        shape = all(recorder.known[member].shape for member in members)
        contents = all(recorder.known[member].contents for member in members)
        made = recorder.add([recorder.values[member] for member in members], Knowledge(shape, contents))
        recorder.sequences[made] = members
        recorder.lifetimes.join(made, members)
        return made

    def launch(self, op_type: str, kernel: Any, inputs: Sequence[int], attributes: Mapping[str, Any] | None = None) -> int:
        made = self._recorder.add(None, Knowledge())
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
            provider=step.provider,
            device=step.device,
            attributes=attributes or {},
        )
        self._recorder.launch(launched, tuple(inputs), (made,))
        return made

    def take_body(self, body: Subgraph, inputs: Sequence[int], captured: Sequence[int]) -> list[int]:
        plan = _runner(body).plan
        recorder = self._recorder
        offset = recorder.enter(plan)
        for feed, value in zip(plan.feeds, inputs, strict=True):
            recorder.rename(offset + feed.index, value)
        for position, index in plan.captures:
            recorder.rename(offset + index, captured[position])
        count = len(recorder.steps)
        recorder.run(plan, offset)
        recorder.expanded_steps += len(recorder.steps) - count
        places = [offset + fetch.index for fetch in plan.fetches]
        return [recorder.aliases.get(place, place) for place in places]

    def foresee(self, body: Subgraph, inputs: Sequence[Knowledge], captured: Sequence[Knowledge]) -> Foresight:
        return foreseen(self, _runner(body).plan, inputs, captured)

    def has_room_for(self, steps: int) -> bool:
        return self._recorder.expanded_steps + steps <= MAX_EXPANDED_STEPS

    def attempt(self, action: Callable[[], Sequence[int] | None], max_elements: int | None = None) -> Sequence[int] | None:
        recorder = self._recorder
        values, steps = len(recorder.values), len(recorder.steps)
        try:
            found = action()
        except Exception as error:
            if isinstance(error, Fail) and STOPPED in error.text:
                raise
            found = None
        if found is not None and (max_elements is None or recorder.elements_made_since(steps) <= max_elements):
            return found
        recorder.undo(values, steps)
        return None


def _runner(body: Subgraph) -> BodyRunner:
    if not isinstance(body, BodyRunner):
        raise TypeError(f"a body of the host's own is needed; got {type(body).__name__}")
    return body


LISTING = ExpandedKernel(lambda *tensors: list(tensors))
"""Makes a sequence of which a step needs more than its tensors."""
