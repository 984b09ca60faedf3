"""Copies between host memory and OpenCL buffers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyopencl as cl

from ort_sdk.api import HostArray, InvalidArgument, OrtDevice
from ort_sdk.device import DeviceArray, DeviceContext

__all__ = ["OpenClDataTransfer"]


class OpenClDataTransfer:
    """Copies for one device.

    Uploads are finished before ``copy`` returns: the host array may be the caller's and may change right after.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._launcher = context.launcher

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        return {source.name, target.name} == {"cpu", "opencl"} and self._is_own(source if target.is_cpu else target)

    def _is_own(self, device: OrtDevice) -> bool:
        from .device import device_context

        return device_context(device.index) is self._context

    def copy(self, array: HostArray | DeviceArray, source: OrtDevice, target: OrtDevice) -> HostArray | DeviceArray:
        if isinstance(array, DeviceArray):
            return self._context.download(array.node)
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"copying a tensor of strings, shape {list(array.shape)}, to {target}: strings stay on the host"
            )
        from ort_sdk.api import TensorElementType

        return DeviceArray(self._context, self._context.upload(array, TensorElementType.from_numpy_dtype(array.dtype)))

    def copy_into(
        self, array: HostArray | DeviceArray, source: OrtDevice, destination: HostArray | DeviceArray, target: OrtDevice
    ) -> None:
        """Fill ``destination``; see the contract's ``SupportsReadInto``."""
        if isinstance(array, DeviceArray) and isinstance(destination, np.ndarray):
            destination[...] = self._context.download(array.node)
        elif isinstance(array, np.ndarray) and isinstance(destination, DeviceArray):
            memory = destination.dense().memory
            if array.nbytes and memory is not None:
                self._launcher.upload(np.ascontiguousarray(array), memory)
        else:
            raise InvalidArgument(f"copying from {source} to {target}: one of the two must be the host")

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        offset, memory = 0, destination.dense().memory
        assert memory is not None
        for piece in pieces:
            cl.enqueue_copy(self._launcher.queue, memory.handle, piece, dst_offset=offset, is_blocking=True)
            offset += piece.nbytes
