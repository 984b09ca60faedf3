"""Device memory for the host."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import OrtMemoryInfo, TensorElementType
from ort_sdk.device import DeviceArray, DeviceContext

__all__ = ["OpenClAllocator"]


class OpenClAllocator:
    """Allocates arrays from a device's pool, to which their memory goes back when nothing refers to it any more.

    Args:
        context: of the device.
        memory_info: of the memory.
    """

    def __init__(self, context: DeviceContext, memory_info: OrtMemoryInfo) -> None:
        self._context = context
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> DeviceArray:
        return DeviceArray(self._context, self._context.new(tuple(shape), element_type))

    def release(self, array: DeviceArray) -> None:
        """Nothing: the array is the last that refers to its memory, and ends with the call."""
