"""Copies between host memory and OpenCL buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ort_sdk.api import HostArray, OrtDevice, Slot
from ort_sdk.device import DeviceArray, DeviceContext, DeviceDataTransfer, Memory

from .device import launcher_of
from .launching.bound_calls import OpenClCopy

__all__ = ["OpenClDataTransfer"]


class OpenClDataTransfer(DeviceDataTransfer):
    """Copies for one device.

    Args:
        device: the device.
        context: what computes on it.
    """

    def __init__(self, device: OrtDevice, context: DeviceContext) -> None:
        super().__init__(device, context)
        self._queue = launcher_of(context).queue

    def bind_copy(self, source: Slot, target: Slot) -> Callable[[], None]:
        return OpenClCopy(self._queue, source, target)

    def copy_on_device(self, source: DeviceArray, target: DeviceArray) -> None:
        read, written = source.dense().held, target.dense().held
        if source.nbytes and read.place != written.place:
            self._queue.copy(read.handle, written.handle, source.nbytes)

    def download_all(self, pairs: Sequence[tuple[Memory, HostArray]]) -> None:
        self._queue.download([(memory.handle, array) for memory, array in pairs])

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        offset, buffer = 0, destination.dense().held.handle
        for piece in pieces:
            self._queue.upload(piece, buffer, offset)
            offset += piece.nbytes
