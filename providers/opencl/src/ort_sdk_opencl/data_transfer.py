"""Copies between host memory and OpenCL buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, OrtDevice, TensorElementType
from ort_sdk.device import DeviceArray, DeviceContext

from .device import launcher_of

__all__ = ["OpenClDataTransfer", "buffer_of"]


def buffer_of(array: DeviceArray) -> Any:
    """The buffer of an array that has memory."""
    memory = array.dense().memory
    assert memory is not None  # noqa: S101 - dense arrays have it
    return memory.handle


class OpenClDataTransfer:
    """Copies for one device.

    Uploads are finished before ``copy`` returns: the host array may be the caller's and may change right after.

    Args:
        device: the device.
        context: what computes on it.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        self._device, self._context = device, context
        self._queue = launcher_of(context).queue

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        return (source.is_cpu and target == self._device) or (target.is_cpu and source == self._device)

    def copy(self, array: HostArray | DeviceArray, source: OrtDevice, target: OrtDevice) -> HostArray | DeviceArray:
        if isinstance(array, DeviceArray):
            return self._context.download(array.node)
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"copying a tensor of strings, shape {list(array.shape)}, to {target}: strings stay on the host"
            )
        return DeviceArray(self._context, self._context.upload(array, TensorElementType.from_numpy_dtype(array.dtype)))

    def copy_into(
        self, array: HostArray | DeviceArray, source: OrtDevice, destination: HostArray | DeviceArray, target: OrtDevice
    ) -> None:
        """Fill ``destination``; see the contract's ``SupportsReadInto``."""
        if isinstance(array, DeviceArray) and isinstance(destination, np.ndarray):
            destination[...] = self._context.download(array.node)
        elif isinstance(array, np.ndarray) and isinstance(destination, DeviceArray):
            if array.nbytes:
                self._queue.upload(np.ascontiguousarray(array), buffer_of(destination))
        else:
            raise InvalidArgument(f"copying from {source} to {target}: one of the two must be the host")

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        offset, buffer = 0, buffer_of(destination)
        for piece in pieces:
            self._queue.upload(piece, buffer, offset)
            offset += piece.nbytes
