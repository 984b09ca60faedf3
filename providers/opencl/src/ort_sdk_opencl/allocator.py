"""Device memory for the host."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import OrtMemoryInfo, TensorElementType

from .array import OpenClArray, empty
from .device import DeviceContext

__all__ = ["OpenClAllocator"]


class OpenClAllocator:
    """Allocates one OpenCL buffer per array."""

    def __init__(self, context: DeviceContext, memory_info: OrtMemoryInfo) -> None:
        self._context = context
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> OpenClArray:
        return empty(self._context, tuple(shape), element_type.numpy_dtype)

    def release(self, array: OpenClArray) -> None:
        """Free the buffer once the queue is done with it, which OpenCL sees to."""
        array.buffer.release()
