"""Copies between host memory and a device's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ort_sdk.api import HostArray, OrtDevice, Slot
from ort_sdk.device import DeviceArray, DeviceContext, DeviceDataTransfer

from .device import launcher_of
from .launching import CudaCopy

__all__ = ["CudaDataTransfer"]


class CudaDataTransfer(DeviceDataTransfer):
    """Copies for one device.

    Args:
        device: the device.
        context: what computes on it.
    """

    reads_late = False

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        super().__init__(device, context)
        self._queue = launcher_of(context).queue

    def can_copy(self, source: OrtDevice, target: OrtDevice) -> bool:
        return super().can_copy(source, target) or source == target == self._device

    def copy(self, array: HostArray | DeviceArray, source: OrtDevice, target: OrtDevice) -> HostArray | DeviceArray:
        if not target.is_cpu and isinstance(array, DeviceArray):
            return array.made(self._context.copied(array.dense()))
        found = super().copy(array, source, target)
        if target.is_cpu:
            self._queue.run.raise_first(self._queue.name)
        return found

    def copy_into(
        self, array: HostArray | DeviceArray, source: OrtDevice, destination: HostArray | DeviceArray, target: OrtDevice
    ) -> None:
        if isinstance(array, DeviceArray) and isinstance(destination, DeviceArray):
            nbytes, addresses = array.nbytes, (destination.dense().held.handle, array.dense().held.handle)
            if nbytes and addresses[0] != addresses[1]:
                with self._queue.commands(f"copying {nbytes} bytes on the device") as driver:
                    driver.copy_on_device(*addresses, nbytes, self._queue.stream)
            return
        super().copy_into(array, source, destination, target)
        if target.is_cpu:
            self._queue.run.raise_first(self._queue.name)

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        return CudaCopy(self._queue, source, target)

    def copy_all(
        self, arrays: Sequence[DeviceArray], source: OrtDevice, destinations: Sequence[HostArray | None]
    ) -> Sequence[HostArray]:
        """Contents of several arrays; see the contract's ``SupportsCopyAll``."""
        found = []
        for array, into in zip(arrays, destinations, strict=True):
            target = np.empty(array.shape, array.dtype) if into is None else into
            super().copy_into(array, source, target, OrtDevice())
            found.append(target)
        self._queue.run.raise_first(self._queue.name)
        return found

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        address = destination.dense().held.handle
        for piece in pieces:
            self._queue.upload(piece, address)
            address += piece.nbytes
