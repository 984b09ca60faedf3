"""Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, InvalidArgument, InvalidGraph, KernelInfo, OpKernel, tensor_type_element
from ort_sdk.api.step_expansion import AbstractResult, AbstractValue, ExpandedKernel, ExpandingProgram
from ort_sdk.opset.definition import operator

from .bodies import fresh, gathered_output, is_true, owned, stacking_of
from .expanding import stacked_values

ENDLESS = 1 << 31
"""Trip counts from which on it is the condition that ends a loop."""


@operator(
    "Loop",
    host_inputs=(0, 1),
    shape_inputs=None,
    deterministic=False,
    any_type=True,
    host_only=True,
    hands_on_values=True,
)
class Loop(OpKernel):
    """Runs the body while the trip count is not reached and its condition holds; an absent one never ends the loop.

    Outputs are the last loop-carried values (tensors, sequences, optionals), then the scan outputs of all iterations,
    stacked. The body's condition counts whether or not the node has a condition input, as in ONNX Runtime.

    Raises:
        InvalidGraph: the body's inputs and outputs do not fit the node's.
    """

    def __init__(self, info: KernelInfo, xp: Any) -> None:
        self._info = info
        self._xp = xp
        self._body = info.subgraph("body")
        self._own_inputs = len(info.inputs)
        self._carried = max(self._own_inputs - 2, 0)
        self._scans = len(self._body.output_names) - 1 - self._carried
        if len(self._body.input_names) != 2 + self._carried or self._scans < 0:
            raise InvalidGraph(
                f"{info.describe()}: a body for {self._carried} loop-carried values needs {2 + self._carried} inputs and at "
                f"least {1 + self._carried} outputs; it has {len(self._body.input_names)} and {len(self._body.output_names)}"
            )
        # A body may declare its iteration number and condition as vectors of one element.
        self._number_shape, self._condition_shape = ((1,) if shape else () for shape in self._body.input_shapes[:2])

    def compute(self, *values: Array) -> tuple[Array, ...]:
        own, captured = values[: self._own_inputs], values[self._own_inputs :]
        trips, condition = (*own[:2], None, None)[:2]
        limit = None if trips is None else self._single(trips, "trip count")
        going = condition is None or is_true(self._info, self._xp, condition)
        state: Sequence[Array] = own[2:]
        scans: list[list[Array]] = [[] for _ in range(self._scans)]
        # The condition that the body is given: else there would be no iteration.
        goes_on = self._xp.from_host(np.ones(self._condition_shape, dtype=np.bool_))
        iteration = 0
        while going and (limit is None or iteration < limit):
            outputs = self._body([self._number(iteration), goes_on, *state], captured)
            going = is_true(self._info, self._xp, outputs[0])
            state = outputs[1 : 1 + self._carried]
            for gathered, value in zip(scans, outputs[1 + self._carried :], strict=True):
                gathered.append(value)
            iteration += 1
        xp = self._xp
        final = owned(xp, self._body, state, first=1) if iteration else [fresh(xp, value) for value in state]
        return (*final, *(self._gathered(index, values) for index, values in enumerate(scans)))

    def abstract_eval(self, program: ExpandingProgram, inputs: Sequence[AbstractValue]) -> AbstractResult | None:
        """What would be known if the trips are known to be few enough."""
        known = AbstractValue(shape_known=True, value_known=True)
        own, captured = inputs[: self._own_inputs], inputs[self._own_inputs :]
        if not all(each.value_known for each in own[:2]):
            return None
        state = tuple(own[2:])
        while True:
            result = program.abstract_eval(self._body, (known, known, *state), captured)
            after = tuple(first & second for first, second in zip(state, result.outputs[1:], strict=False))
            if after == state:
                break
            state = after
        if not result.outputs[0].value_known:
            return None
        outputs = (*state, *result.outputs[1 + self._carried :])
        return result._replace(outputs=outputs, operators=result.operators | {("Loop", True)})

    def expand(self, program: ExpandingProgram, inputs: Sequence[int]) -> Sequence[int] | None:
        """As many copies of the body as there are trips, unless that leaves most of their shapes unknown."""
        known = [program.abstract_value(value) for value in inputs]
        result = self.abstract_eval(program, known)
        if result is None or self._loses_shapes(known[2 : self._own_inputs], result.outputs):
            return None
        trips, condition = (*inputs[: self._own_inputs][:2], 0, 0)[:2]
        limit = self._single(program.value(trips), "trip count") if trips else ENDLESS
        if limit < ENDLESS and not program.has_room_for(max(limit, 0) * max(result.steps, 1)):
            return None
        going = not condition or is_true(self._info, self._xp, program.value(condition))
        return program.attempt(lambda: self._unrolled(program, inputs, limit if going else 0, result.steps))

    def _loses_shapes(self, before: Sequence[AbstractValue], after: Sequence[AbstractValue]) -> bool:
        """Whether the shape of a carried tensor is known before the loop and not in it: what is made of it is not known, too."""
        types = self._body.output_types[1:]
        return any(
            own.shape and not result.shape and type_string is not None and tensor_type_element(type_string) is not None
            for own, result, type_string in zip(before, after, types, strict=False)
        )

    def _unrolled(self, program: ExpandingProgram, inputs: Sequence[int], limit: int, steps: int) -> list[int] | None:
        state, captured = inputs[2 : self._own_inputs], inputs[self._own_inputs :]
        scans: list[list[int]] = [[] for _ in range(self._scans)]
        goes_on = program.constant(self._xp.from_host(np.ones(self._condition_shape, dtype=np.bool_)))
        for iteration in range(limit):
            if not program.has_room_for(max(steps, 1)):
                return None
            outputs = program.take_body(self._body, [program.constant(self._number(iteration)), goes_on, *state], captured)
            state = outputs[1 : 1 + self._carried]
            for gathered, value in zip(scans, outputs[1 + self._carried :], strict=True):
                gathered.append(value)
            if not program.abstract_value(outputs[0]).value_known:
                return None
            if not is_true(self._info, self._xp, program.value(outputs[0])):
                break
        return [*state, *(self._expanded_scan(program, index, values) for index, values in enumerate(scans))]

    def _expanded_scan(self, program: ExpandingProgram, index: int, values: list[int]) -> int:
        stacking = stacking_of(self._body, 1 + self._carried + index)
        if not all(program.abstract_value(value).shape_known for value in values):
            kernel = ExpandedKernel(lambda *arrays: self._gathered(index, list(arrays)))
            return program.launch("Concat", kernel, values, provider=None if stacking is None else stacking.provider)
        arrays = [program.value(value) for value in values]
        if len({array.shape for array in arrays}) == 1:
            return stacked_values(program, self._info, self._xp, values, 0, stacking)
        return program.constant(self._gathered(index, arrays))  # None, or an error: shapes differ

    def _number(self, iteration: int) -> Array:
        """Iteration number for the body: int64."""
        return self._xp.from_host(np.array([iteration] if self._number_shape else iteration, dtype=np.int64))

    def _gathered(self, index: int, values: list[Array]) -> Array:
        return gathered_output(self._info, self._xp, self._body, 1 + self._carried + index, values, 0)

    def _single(self, value: HostArray, what: str) -> int:
        if value.size != 1:
            raise InvalidArgument(f"{self._info.describe()}: the {what} must have one element; its shape is {value.shape}")
        return int(value.item())
