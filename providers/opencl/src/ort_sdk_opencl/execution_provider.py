"""The provider in a session: one device and its queue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ort_sdk.api import Array, ExecutionProvider, FusibleProgram, OrtDevice, StepFusion, TensorElementType
from ort_sdk.device import CapturedCall, DeviceArray, fuse_neighbours

from .device import device_context
from .launcher import joined

__all__ = ["OpenClExecutionProvider"]


class OpenClExecutionProvider(ExecutionProvider):
    """Queues work on an in-order queue; waits for it where a run ends."""

    def __init__(self, name: str, device: OrtDevice, options: Mapping[str, str]) -> None:
        super().__init__(name, device, options)
        self.context = device_context(device.index)

    @contextlib.contextmanager
    def run_scope(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.context.launcher.finish()

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        # outputs on the host are NumPy's
        return (array.element_type, array.shape) if isinstance(array, DeviceArray) else super().describe(array)

    def fuse_steps(self, program: FusibleProgram) -> StepFusion:
        return fuse_neighbours(program, self.context)

    def join_calls(self, calls: Sequence[Callable[[], Any]]) -> Sequence[tuple[int, Callable[[], Any]]]:
        if len(calls) > 1 and all(isinstance(call, CapturedCall) for call in calls):
            return [(len(calls), joined([call.launches for call in calls]))]
        return [(1, call) for call in calls]
