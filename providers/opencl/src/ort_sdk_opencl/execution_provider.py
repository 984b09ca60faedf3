"""The provider in a session: one device and its queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from ort_sdk.api import Array, ExecutionProvider, OrtDevice, TensorElementType

from .device import device_context

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
            self.context.queue.finish()

    def describe(self, array: Array) -> tuple[TensorElementType, tuple[int, ...]]:
        return TensorElementType.from_numpy_dtype(array.dtype), array.shape
