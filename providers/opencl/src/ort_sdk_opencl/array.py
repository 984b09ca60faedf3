"""Arrays in OpenCL buffers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl

from ort_sdk.api.data_classes import dataclass

from .device import DeviceContext

__all__ = ["OpenClArray", "empty"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenClArray:
    """A dense row-major array in device memory. Its contents may still be on their way: the queue is in order."""

    buffer: Any
    """The ``pyopencl.Buffer``; at least one byte even for no elements, which OpenCL cannot allocate."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    context: DeviceContext

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    def reshaped(self, shape: tuple[int, ...]) -> OpenClArray:
        """The same elements under another shape; shares the buffer."""
        return OpenClArray(self.buffer, shape, self.dtype, self.context)


def empty(context: DeviceContext, shape: tuple[int, ...], dtype: np.dtype[Any]) -> OpenClArray:
    """A new array with undefined contents.

    Raises:
        MemoryError: the device has no room for it.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        buffer = cl.Buffer(context.context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
    except cl.Error as error:
        limit = context.device.max_mem_alloc_size
        raise MemoryError(
            f"allocating {nbytes} bytes for shape {list(shape)} on {context.device.name}: {error}; at most {limit} in a buffer"
        ) from error
    return OpenClArray(buffer, shape, dtype, context)
