"""What the external data loaders of all devices have: which weights they take, and checks of these."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import ExternalDataInfo, Fail, OrtDevice, OrtMemoryInfo

from .array import DeviceArray

__all__ = ["DeviceExternalDataLoader"]


class DeviceExternalDataLoader:
    """Puts weights on one device; see the contract's ``ExternalDataLoader``. Subclasses ``fill``.

    Args:
        device: of the host's.
    """

    def __init__(self, device: OrtDevice) -> None:
        self._device = device

    def can_load(self, memory_info: OrtMemoryInfo) -> bool:
        return memory_info.device == self._device

    def can_load_tensor(self, info: ExternalDataInfo) -> bool:
        """Only what is in a file, or in a buffer that stands for one."""
        return info.content is not None

    def load_tensor(self, info: ExternalDataInfo, tensor: DeviceArray) -> None:
        self.load_tensors([(info, tensor)])

    def load_tensors(self, batch: Sequence[tuple[ExternalDataInfo, DeviceArray]]) -> None:
        """Fill several tensors; returns when the device has them.

        Raises:
            Fail: a tensor is no range of its file, or the file changes while it is read.
        """
        for info, tensor in batch:
            _check(info, tensor)
        self.fill(batch)

    def fill(self, batch: Sequence[tuple[ExternalDataInfo, DeviceArray]]) -> None:
        """Fill tensors, each of which has the size of a range of its file's content.

        Raises:
            Fail: a file changes while it is read.
        """
        raise NotImplementedError


def _check(info: ExternalDataInfo, tensor: DeviceArray) -> None:
    available = 0 if info.content is None else len(info.content)
    if info.content is None or info.offset + info.length > available or info.length != tensor.nbytes:
        found = f"{info.length} bytes at {info.offset} of '{info.location}' ({available} bytes)"
        raise Fail(f"loading '{info.name}': {found} for an array of {tensor.nbytes} bytes")
