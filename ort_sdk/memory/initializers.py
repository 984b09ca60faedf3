"""Constants placed on the devices they are read on, each once."""

from __future__ import annotations

from ort_sdk.api import CPU_DEVICE, Array, OrtDevice, Tensor

from .data_transfer_manager import DataTransferManager

__all__ = ["InitializerPlacement"]


class InitializerPlacement:
    """The constants of one session by tensor and device. On the host they are views of their source.

    Args:
        transfers: copies to other devices.
    """

    def __init__(self, transfers: DataTransferManager) -> None:
        self._transfers = transfers
        self._placed: dict[tuple[int, OrtDevice], tuple[Tensor, Array]] = {}

    def place(self, tensor: Tensor, device: OrtDevice) -> Array:
        """The tensor's elements on a device; the same array each time it is asked."""
        key = (id(tensor), device)
        found = self._placed.get(key)
        if found is None:
            array: Array = tensor.numpy()
            if not device.is_cpu:
                array = self._transfers.copy(array, CPU_DEVICE, device)
            found = self._placed[key] = (tensor, array)
        return found[1]
