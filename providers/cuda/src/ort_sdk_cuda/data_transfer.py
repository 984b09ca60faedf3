"""Copies between host memory and a device's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ort_sdk.api import HostArray, OrtDevice, Slot
from ort_sdk.device import DeviceArray, DeviceContext, DeviceDataTransfer, Memory

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

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        return CudaCopy(self._queue, source, target)

    def copy_on_device(self, source: DeviceArray, target: DeviceArray) -> None:
        addresses = target.dense().held.handle, source.dense().held.handle
        if source.nbytes and addresses[0] != addresses[1]:
            with self._queue.commands(f"copying {source.nbytes} bytes on the device") as driver:
                driver.copy_on_device(*addresses, source.nbytes, self._queue.stream)

    def download_all(self, pairs: Sequence[tuple[Memory, HostArray]]) -> None:
        self._queue.download([(memory.handle, array) for memory, array in pairs])

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        address = destination.dense().held.handle
        for piece in pieces:
            self._queue.upload(piece, address)
            address += piece.nbytes
