"""Copies between host memory and OpenCL buffers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyopencl as cl

from ort_sdk.api import HostArray, InvalidArgument, OrtDevice

from .array import OpenClArray, empty
from .device import DeviceContext

__all__ = ["OpenClDataTransfer"]


class OpenClDataTransfer:
    """Copies for one device.

    Uploads are finished before ``copy`` returns: the host array may be the caller's and may change right after.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        return {source.name, target.name} == {"cpu", "opencl"} and self._is_own(source if target.is_cpu else target)

    def _is_own(self, device: OrtDevice) -> bool:
        from .device import device_context

        return device_context(device.index) is self._context

    def copy(self, array: HostArray | OpenClArray, source: OrtDevice, target: OrtDevice) -> HostArray | OpenClArray:
        if isinstance(array, OpenClArray):
            host = np.empty(array.shape, dtype=array.dtype)
            self._download(array, host)
            return host
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"copying a tensor of strings, shape {list(array.shape)}, to {target}: strings stay on the host"
            )
        device_array = empty(self._context, array.shape, array.dtype)
        self._upload(array, device_array)
        return device_array

    def copy_into(
        self, array: HostArray | OpenClArray, source: OrtDevice, destination: HostArray | OpenClArray, target: OrtDevice
    ) -> None:
        """Fill ``destination``; see the contract's ``SupportsReadInto``."""
        if isinstance(array, OpenClArray) and isinstance(destination, np.ndarray):
            self._download(array, destination)
        elif isinstance(array, np.ndarray) and isinstance(destination, OpenClArray):
            self._upload(array, destination)
        else:
            raise InvalidArgument(f"copying from {source} to {target}: one of the two must be the host")

    def stream_into(self, pieces: Iterable[HostArray], destination: OpenClArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        offset = 0
        for piece in pieces:
            cl.enqueue_copy(self._context.queue, destination.buffer, piece, dst_offset=offset, is_blocking=True)
            offset += piece.nbytes

    def _upload(self, array: HostArray, destination: OpenClArray) -> None:
        if array.nbytes:
            cl.enqueue_copy(self._context.queue, destination.buffer, np.ascontiguousarray(array), is_blocking=True)

    def _download(self, array: OpenClArray, destination: HostArray) -> None:
        if not array.nbytes:
            return
        contiguous = destination if destination.flags.c_contiguous else np.empty(destination.shape, dtype=destination.dtype)
        cl.enqueue_copy(self._context.queue, contiguous, array.buffer, is_blocking=True)
        if contiguous is not destination:
            destination[...] = contiguous
