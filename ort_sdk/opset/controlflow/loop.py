"""Loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.definition import operator

from .bodies import empty_scan_output, fresh, is_true, owned, stacked


@operator("Loop", host_inputs=(0, 1), shape_inputs=None, deterministic=False, any_type=True, host_only=True)
def loop(info: KernelInfo, xp: Any) -> Compute:
    """Runs the body while the trip count is not reached and its condition holds; an absent one never ends the loop.

    Outputs are the last loop-carried values (tensors, sequences, optionals), then the scan outputs of all iterations,
    stacked. The body's condition counts whether or not the node has a condition input, as in ONNX Runtime.

    Raises:
        InvalidGraph: the body's inputs and outputs do not fit the node's.
    """
    return _Loop(info, xp).compute


class _Loop:
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

    def _number(self, iteration: int) -> Array:
        """Iteration number for the body: int64."""
        return self._xp.from_host(np.array([iteration] if self._number_shape else iteration, dtype=np.int64))

    def _gathered(self, index: int, values: list[Array]) -> Array:
        output = 1 + self._carried + index
        if not values:
            return empty_scan_output(self._info, self._xp, self._body, output, axis=0)
        return stacked(self._info, self._xp, values, 0, self._body.output_names[output])

    def _single(self, value: HostArray, what: str) -> int:
        if value.size != 1:
            raise InvalidArgument(f"{self._info.describe()}: the {what} must have one element; its shape is {value.shape}")
        return int(value.item())
