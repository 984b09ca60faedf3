"""The device: memory of its own, and three functions. A real provider has its vendor's library in this place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, InvalidArgument, OrtDevice, OrtMemoryInfo, TensorElementType

__all__ = ["CAPACITY_BYTES", "NPU", "NpuAllocator", "NpuArray", "NpuDataTransfer"]

NPU = OrtDevice("example-npu", 0)
CAPACITY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class NpuArray:
    """An array in the device's memory. Only the device's own functions and the data transfer look inside."""

    memory: np.ndarray[tuple[int, ...], np.dtype[Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        return self.memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.memory.dtype


class NpuAllocator:
    """Hands out arrays for the host to fill."""

    def __init__(self, memory_info: OrtMemoryInfo) -> None:
        self.memory_info = memory_info

    def allocate(self, shape: Sequence[int], element_type: TensorElementType) -> NpuArray:
        """A new array with undefined contents.

        Raises:
            MemoryError: the device has less memory.
        """
        wanted = element_type.nbytes(int(np.prod(shape, dtype=np.int64)))
        if wanted > CAPACITY_BYTES:
            raise MemoryError(f"{NPU}: {wanted} bytes asked, the device has {CAPACITY_BYTES}")
        return NpuArray(np.empty(tuple(shape), element_type.numpy_dtype))

    def release(self, array: NpuArray) -> None:
        """Nothing to do: the memory ends with its last array."""


class NpuDataTransfer:
    """The only door to the device's memory."""

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Between the host and the device, both ways."""
        return (source, target) in ((CPU_DEVICE, NPU), (NPU, CPU_DEVICE))

    def copy(self, array: Any, source: OrtDevice, target: OrtDevice) -> Any:
        """A new array on ``target``, never memory of ``array``.

        Raises:
            InvalidArgument: the device holds no strings.
        """
        if target == CPU_DEVICE:
            return array.memory.copy()
        if array.dtype.hasobject:
            raise InvalidArgument(f"copying strings of shape {list(array.shape)} to {target}: strings stay on the host")
        return NpuArray(np.array(array, order="C", copy=True))

    def copy_into(self, array: Any, source: OrtDevice, destination: Any, target: OrtDevice) -> None:
        """Fill an array that exists already."""
        if target == CPU_DEVICE:
            destination[...] = array.memory
        else:
            destination.memory[...] = array
