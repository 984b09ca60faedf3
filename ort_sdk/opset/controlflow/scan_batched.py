"""Scan of version 8: batch axis 0, scan axis 1, sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

from .scan import ScanBody, slices


@operator("Scan", since=8, until=8, host_inputs=(0,), shape_inputs=None, deterministic=False, any_type=True, host_only=True)
def scan_8(info: KernelInfo, xp: Any) -> Compute:
    """Runs the body on one slice of each scan input after the other, for each member of a batch on its own.

    Scan outputs are filled up with zeros behind the length of a shorter sequence.

    Raises:
        InvalidGraph: attributes and body do not fit each other.
    """
    return _BatchedScan(info, xp).compute


class _BatchedScan(ScanBody):
    def __init__(self, info: KernelInfo, xp: Any) -> None:
        super().__init__(info, xp, len(info.inputs) - 1)
        self._reversed = self.flags("directions", self.scan_inputs)

    def compute(self, sequence_lens: HostArray | None, *values: Array) -> tuple[Array, ...]:
        count = self.states + self.scan_inputs
        states, inputs, captured = values[: self.states], values[self.states : count], values[count:]
        batch, longest = self._common_sizes(inputs, states)
        lengths = self._lengths(sequence_lens, batch, longest)
        finals: list[list[Array]] = []
        gathered: list[list[Array]] = []
        for member, length in enumerate(lengths):
            scans = [slices(x[member, ...][:length, ...], 0, way) for x, way in zip(inputs, self._reversed, strict=True)]
            final, outputs = self.run([state[member, ...] for state in states], scans, length, captured)
            finals.append(final)
            gathered.append([self._padded(index, each, longest) for index, each in enumerate(outputs)])
        stack = self.xp.stack
        return (*(stack(each) for each in zip(*finals, strict=True)), *(stack(each) for each in zip(*gathered, strict=True)))

    def _padded(self, index: int, values: Sequence[Array], longest: int) -> Array:
        xp = self.xp
        output = self.output(index, values, 0)
        missing = longest - len(values)
        if not missing:
            return output
        return xp.concat([output, xp.zeros((missing, *output.shape[1:]), dtype=output.dtype)], axis=0)

    def _common_sizes(self, inputs: Sequence[Array], states: Sequence[Array]) -> tuple[int, int]:
        sizes = {tuple(x.shape[:2]) for x in inputs}
        batches = {size[0] for size in sizes} | {state.shape[0] for state in states}
        if len(sizes) != 1 or len(batches) != 1 or 0 in batches:
            raise InvalidArgument(
                f"{self.info.describe()}: scan inputs of shapes {[tuple(x.shape) for x in inputs]} and states of shapes "
                f"{[tuple(state.shape) for state in states]} must share a batch size >= 1 (axis 0), scan inputs a length (axis 1)"
            )
        batch, longest = sizes.pop()
        return batch, longest

    def _lengths(self, sequence_lens: HostArray | None, batch: int, longest: int) -> list[int]:
        if sequence_lens is None:
            return [longest] * batch
        lengths: list[int] = sequence_lens.tolist()
        if len(lengths) != batch or min(lengths) < 0 or max(lengths) > longest:
            raise InvalidArgument(
                f"{self.info.describe()}: sequence_lens {lengths} must give a length in [0, {longest}] for each of "
                f"{batch} batch members"
            )
        return lengths
