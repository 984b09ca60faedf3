"""Scan of version 9 and newer: any axes, no batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, InvalidArgument, InvalidGraph, KernelInfo, OpKernel
from ort_sdk.api.step_expansion import AbstractResult, AbstractValue, ExpandingProgram
from ort_sdk.opset.definition import operator

from .bodies import fresh, gathered_output, owned, scan_axis, stacking_of
from .expanding import piece, stacked_values


class ScanBody:
    """The body of a Scan with its numbers of state variables, scan inputs and scan outputs."""

    def __init__(self, info: KernelInfo, xp: Any, state_and_scan_inputs: int) -> None:
        self.info = info
        self.xp = xp
        self.body = info.subgraph("body")
        self.scan_inputs = info.attribute("num_scan_inputs")
        self.states = state_and_scan_inputs - self.scan_inputs
        self.scan_outputs = len(self.body.output_names) - self.states
        if (
            self.scan_inputs < 1
            or self.states < 0
            or self.scan_outputs < 0
            or len(self.body.input_names) != state_and_scan_inputs
        ):
            raise InvalidGraph(
                f"{info.describe()}: {state_and_scan_inputs} values with {self.scan_inputs} scan inputs do not fit a body of "
                f"{len(self.body.input_names)} inputs and {len(self.body.output_names)} outputs"
            )

    def flags(self, name: str, count: int) -> list[int]:
        """An attribute with one integer for each scan input or output; zeros if it is absent.

        Raises:
            InvalidGraph: it has another length.
        """
        values = info_values = self.info.attribute(name, None) or [0] * count
        if len(info_values) != count:
            raise InvalidGraph(f"{self.info.describe()}: {name} has {len(info_values)} entries; it needs {count}")
        return list(values)

    def run(
        self, state: Sequence[Array], scans: Sequence[Sequence[Array]], length: int, captured: Sequence[Array]
    ) -> tuple[list[Array], list[list[Array]]]:
        """Run ``length`` iterations; gives the last state, freshly owned, and what each scan output was in each iteration."""
        gathered: list[list[Array]] = [[] for _ in range(self.scan_outputs)]
        for iteration in range(length):
            outputs = self.body([*state, *(slices[iteration] for slices in scans)], captured)
            state = outputs[: self.states]
            for values, value in zip(gathered, outputs[self.states :], strict=True):
                values.append(value)
        final = owned(self.xp, self.body, state) if length else [fresh(self.xp, value) for value in state]
        return final, gathered

    def output(self, index: int, values: Sequence[Array], axis: int) -> Array:
        """A scan output: its values in order, stacked along an axis."""
        return gathered_output(self.info, self.xp, self.body, self.states + index, values, axis)


@operator("Scan", since=9, shape_inputs=None, deterministic=False, any_type=True, host_only=True, hands_on_values=True)
class Scan(ScanBody, OpKernel):
    """Runs the body on one slice of each scan input after the other, passing state on.

    Outputs are the last state, then the scan outputs of all iterations, stacked along their axes.

    Raises:
        InvalidGraph: attributes and body do not fit each other.
    """

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        super().__init__(info, xp, len(info.inputs))
        self._input_axes = self.flags("scan_input_axes", self.scan_inputs)
        self._input_reversed = self.flags("scan_input_directions", self.scan_inputs)
        self._output_axes = self.flags("scan_output_axes", self.scan_outputs)
        self._output_reversed = self.flags("scan_output_directions", self.scan_outputs)

    def compute(self, *values: Array) -> tuple[Array, ...]:
        count = self.states + self.scan_inputs
        state, inputs, captured = values[: self.states], values[self.states : count], values[count:]
        axes = [scan_axis(self.info, axis, x.ndim, "scan input") for axis, x in zip(self._input_axes, inputs, strict=True)]
        lengths = {x.shape[axis] for x, axis in zip(inputs, axes, strict=True)}
        if len(lengths) != 1:
            raise InvalidArgument(
                f"{self.info.describe()}: scan inputs have lengths {sorted(lengths)} along their axes; they must be equal"
            )
        length = lengths.pop()
        scans = [slices(x, axis, backward) for x, axis, backward in zip(inputs, axes, self._input_reversed, strict=True)]
        final, gathered = self.run(state, scans, length, captured)
        outputs = [
            self.output(index, each[::-1] if backward else each, axis)
            for index, (each, axis, backward) in enumerate(zip(gathered, self._output_axes, self._output_reversed, strict=True))
        ]
        return (*final, *outputs)

    def abstract_eval(self, program: ExpandingProgram, inputs: Sequence[AbstractValue]) -> AbstractResult | None:
        """What would be known if the shapes of the scan inputs are."""
        count = self.states + self.scan_inputs
        state, scans, captured = tuple(inputs[: self.states]), inputs[self.states : count], inputs[count:]
        if not all(each.shape for each in scans):
            return None
        while True:
            result = program.abstract_eval(self.body, (*state, *scans), captured)
            after = tuple(first & second for first, second in zip(state, result.outputs, strict=False))
            if after == state:
                break
            state = after
        outputs = (*state, *result.outputs[self.states :])
        return result._replace(outputs=outputs, operators=result.operators | {("Scan", True)})

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> Sequence[int] | None:
        """As many copies of the body as the scan inputs are long."""
        result = self.abstract_eval(program, [program.abstract_value(value) for value in inputs])
        if result is None or not all(each.shape for each in result.outputs):
            return None
        scans = inputs[self.states : self.states + self.scan_inputs]
        shapes = [tuple(program.value(value).shape) for value in scans]
        axes = [
            scan_axis(self.info, axis, len(shape), "scan input") for axis, shape in zip(self._input_axes, shapes, strict=True)
        ]
        length, *others = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
        if others or not length or not program.has_room_for(length * max(result.steps, 1)):
            return None
        return program.attempt(lambda: self._unrolled(program, inputs, axes, length, result.steps))

    def _unrolled(
        self, program: ExpandingProgram, inputs: Sequence[int], axes: Sequence[int], length: int, steps: int
    ) -> list[int] | None:
        count = self.states + self.scan_inputs
        state, scans, captured = inputs[: self.states], inputs[self.states : count], inputs[count:]
        gathered: list[list[int]] = [[] for _ in range(self.scan_outputs)]
        for iteration in range(length):
            if not program.has_room_for(max(steps, 1)):
                return None
            indices = [length - 1 - iteration if backward else iteration for backward in self._input_reversed]
            pieces = [piece(program, *which) for which in zip(scans, axes, indices, strict=True)]
            outputs = program.take_body(self.body, [*state, *pieces], captured)
            state = outputs[: self.states]
            for values, value in zip(gathered, outputs[self.states :], strict=True):
                values.append(value)
        return [*state, *(self._expanded_output(program, index, values) for index, values in enumerate(gathered))]

    def _expanded_output(self, program: ExpandingProgram, index: int, values: list[int]) -> int:
        """A scan output as steps; an error for shapes that differ."""
        output, rank = self.states + index, len(program.value(values[0]).shape)
        axis = scan_axis(self.info, self._output_axes[index], rank + 1, self.body.output_names[output])
        ordered = values[::-1] if self._output_reversed[index] else values
        return stacked_values(program, self.info, self.xp, ordered, axis, stacking_of(self.body, output))


def slices(x: Array, axis: int, backward: int) -> list[Array]:
    """Views of an array at each position of an axis, without that axis."""
    before = (slice(None),) * axis
    parts = [x[(*before, position, ...)] for position in range(x.shape[axis])]
    return parts[::-1] if backward else parts
