"""Fuses steps of a program: neighbours on one device become one trace, whose expressions cross the borders of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import FusedSteps, FusibleProgram, FusibleStep, Slot, StepFusion
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.operators.kernel import DeviceKernel, whole

from .capture import bind_launches

__all__ = ["FusedTrace", "fuse_neighbours"]

MOST_STEPS = 256
"""Steps of one trace, so that an error names a part of the model and not all of it."""


def fuse_neighbours(program: FusibleProgram, context: DeviceContext) -> StepFusion:
    """Make one kernel of each run of neighbouring steps of a device.

    Args:
        program: as the host shows it.
        context: of the device; steps of others stay as they are.
    """
    fused = [_fused(group, program, context) for group in _groups(program, context) if len(group) > 1]
    return StepFusion(tuple(each for each in fused if each.outputs))


def _groups(program: FusibleProgram, context: DeviceContext) -> Iterator[list[int]]:
    group: list[int] = []
    for position in sorted(program.steps):
        is_taken = _is_taken(program.steps[position], program, context)
        if group and (not is_taken or position != group[-1] + 1 or len(group) == MOST_STEPS):
            yield group
            group = []
        if is_taken:
            group.append(position)
    if group:
        yield group


def _is_taken(step: FusibleStep, program: FusibleProgram, context: DeviceContext) -> bool:
    kernel = step.kernel
    if not isinstance(kernel, DeviceKernel) or kernel.context is not context or kernel.reads_host or kernel.host_outputs:
        return False
    if not kernel.deterministic or kernel.shape_inputs is None:
        return False
    return all(
        not number or program.values[number].constant is not None
        for position, number in enumerate(step.inputs)
        if kernel.takes_host(position)
    )


def _fused(group: Sequence[int], program: FusibleProgram, context: DeviceContext) -> FusedSteps:
    steps = [program.steps[position] for position in group]
    made = [number for step in steps for number in step.outputs if number]
    inside = set(made)
    inputs = tuple(dict.fromkeys(number for step in steps for number in step.inputs if number and number not in inside))
    own = set(group)
    outputs = tuple(number for number in made if any(reader not in own for reader in program.readers.get(number, ())))
    return FusedSteps(tuple(group), FusedTrace(steps, inputs, outputs, context), inputs, outputs)


class FusedTrace:
    """Steps as one kernel.

    Args:
        steps: in order.
        inputs: numbers of the values they read.
        outputs: numbers of those that others read.
        context: of the device.
    """

    binds_moving_slots = True
    deterministic = True
    computes_step_by_step = True

    def __init__(
        self, steps: Sequence[FusibleStep], inputs: Sequence[int], outputs: Sequence[int], context: DeviceContext
    ) -> None:
        self._steps, self._inputs, self._outputs, self._context = tuple(steps), inputs, outputs, context
        self._last_reads = _last_reads(steps, set(outputs))

    @property
    def algorithm(self) -> str:
        """For reports."""
        return "fused on the device"

    def compute(self, *inputs: Any) -> Any:
        """Run the steps on arrays of any shapes."""
        return tuple(whole(value) for value in self._trace(inputs))

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], None]:
        return bind_launches(self._context, self._trace, inputs, outputs)

    def _trace(self, inputs: Sequence[Any]) -> list[Any]:
        values: dict[int, Any] = {0: None, **dict(zip(self._inputs, inputs, strict=True))}
        for position, step in enumerate(self._steps):
            values |= _results(step, values)
            # an expression that nobody holds any more is computed where it is read, and not kept
            for number in self._last_reads.get(position, ()):
                values.pop(number, None)
        return [values[number] for number in self._outputs]


def _results(step: FusibleStep, values: Mapping[int, Any]) -> dict[int, Any]:
    """The outputs of a step that anybody asked for."""
    results = step.kernel.operator(*[values[number] for number in step.inputs])
    outputs = results if isinstance(results, tuple) else (results,)
    return {number: result for number, result in zip(step.outputs, outputs, strict=False) if number}


def _last_reads(steps: Sequence[FusibleStep], kept: set[int]) -> Mapping[int, list[int]]:
    last = {number: position for position, step in enumerate(steps) for number in (*step.inputs, *step.outputs)}
    found: dict[int, list[int]] = {}
    for number, position in last.items():
        if number and number not in kept:
            found.setdefault(position, []).append(number)
    return found
