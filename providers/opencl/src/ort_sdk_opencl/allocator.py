"""Device memory for the host."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import OrtMemoryInfo, TensorElementType
from ort_sdk.device import DeviceArray, DeviceContext

__all__ = ["OpenClAllocator"]


class OpenClAllocator:
    """Allocates one OpenCL buffer per array."""

    def __init__(self, context: DeviceContext, memory_info: OrtMemoryInfo) -> None:
        self._context = context
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> DeviceArray:
        return DeviceArray(self._context, self._context.new(tuple(shape), element_type))

    def release(self, array: DeviceArray) -> None:
        """Free the buffer once the queue is done with it, which OpenCL sees to."""
        memory = array.dense().memory
        if memory is not None and memory.handle is not None:
            memory.handle.release()
