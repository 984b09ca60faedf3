"""Kernels of a device: an operator of the shared set over the device's arrays, and its launches captured for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ort_sdk.api import OpKernel, Slot
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext, HostReadDuringCapture
from ort_sdk.device.programs.capture import bind_launches

__all__ = ["DeviceKernel", "whole"]


class DeviceKernel(OpKernel):
    """A node's kernel.

    Args:
        compute: the operator over the device's arrays.
        context: of the device.
        declared: kernel whose declarations it takes over.
        takes_host: says whether an input, by position, is a host array.
        host_outputs: whether an output is on the host.
    """

    binds_moving_slots = True

    def __init__(
        self,
        compute: Callable[..., Any],
        context: DeviceContext,
        declared: Any,
        takes_host: Callable[[int], bool],
        *,
        host_outputs: bool,
    ) -> None:
        self.operator, self.context = compute, context
        self.takes_host, self.host_outputs = takes_host, host_outputs
        self.deterministic = bool(getattr(declared, "deterministic", False))
        self.shape_inputs = getattr(declared, "shape_inputs", None)
        self.contents_from_shapes = bool(getattr(declared, "contents_from_shapes", False))
        self.bounded_input: int | None = getattr(compute, "bounded_input", None)
        self._bounds: Callable[..., tuple[int, int] | None] = getattr(compute, "bounds", lambda _shapes: None)
        self.reads_host = False
        """Whether a run has read contents on the host: its launches cannot be captured."""

    def compute(self, *inputs: Any) -> Any:
        earlier = self.context.host_reads
        outputs = self.operator(*inputs)
        self.reads_host = self.reads_host or self.context.host_reads != earlier
        if isinstance(outputs, tuple):
            return tuple(None if each is None else whole(each) for each in outputs)
        return whole(outputs)

    def bounds(self, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, int] | None:
        return None if self.bounded_input is None else self._bounds(shapes)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], None]:
        moving = {position for position, slot in enumerate(inputs) if self.takes_host(position) and not slot.is_constant}
        # a number within its bounds is absent for the operator: what it launches holds for all of them
        is_bounded = moving == {self.bounded_input} and self.bounds([slot.shape for slot in inputs]) is not None
        # sequences are no arrays whose memory could be bound
        has_sequences = any(slot.array is None and slot.shape is None and not slot.is_fixed for slot in inputs)
        if (is_bounded or not moving) and not has_sequences and not self.reads_host:
            try:
                return bind_launches(self.context, lambda values: [self.operator(*_without(values, moving))], inputs, outputs)
            except HostReadDuringCapture:
                self.reads_host = True
        return self._bind_computed(inputs, outputs)

    def _bind_computed(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], None]:
        """A call that computes anew in each run: for kernels that read contents on the host."""
        context = self.context

        def call() -> None:
            results = self.operator(*[slot.array for slot in inputs])
            for slot, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=False):
                if slot.array is not None and result is not None:
                    context.write(result.node, slot.array.strided())

        return call


def _without(values: Sequence[Any], absent: Collection[int]) -> list[Any]:
    return [None if position in absent else value for position, value in enumerate(values)]


def whole(value: Any) -> Any:
    """An output as the host takes it: dense in memory."""
    if not isinstance(value, DeviceArray):
        return value
    array = value.dense()
    return value if value.node is array else value.made(array)
