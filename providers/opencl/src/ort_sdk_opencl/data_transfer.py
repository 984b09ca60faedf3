"""Copies between host memory and OpenCL buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ort_sdk.api import HostArray, OrtDevice, Slot
from ort_sdk.device import DeviceArray, DeviceContext, DeviceDataTransfer

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

    def copy_all(
        self, arrays: Sequence[DeviceArray], source: OrtDevice, destinations: Sequence[HostArray | None]
    ) -> Sequence[HostArray]:
        """Contents of several arrays with one wait; see the contract's ``SupportsCopyAll``."""
        given = zip(arrays, destinations, strict=True)
        pairs = [(array.dense(), np.empty(array.shape, array.dtype) if into is None else into) for array, into in given]
        rows = [into if into.flags.c_contiguous else np.empty(into.shape, into.dtype) for _, into in pairs]
        self._queue.download([(array.held.handle, row) for (array, _), row in zip(pairs, rows, strict=True) if row.nbytes])
        for (_, into), row in zip(pairs, rows, strict=True):
            if into is not row:
                into[...] = row
        return [into for _, into in pairs]

    def stream_into(self, pieces: Iterable[HostArray], destination: DeviceArray, target: OrtDevice) -> None:
        """Fill ``destination`` piece by piece; see the contract's ``SupportsStreamInto``."""
        offset, buffer = 0, destination.dense().held.handle
        for piece in pieces:
            self._queue.upload(piece, buffer, offset)
            offset += piece.nbytes
