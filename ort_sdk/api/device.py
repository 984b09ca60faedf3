"""Devices and kinds of memory, as values."""

from __future__ import annotations

from enum import IntEnum

from .data_classes import dataclass
from .errors import InvalidArgument

__all__ = ["CPU_DEVICE", "OrtDevice", "OrtMemType", "OrtMemoryInfo"]


class OrtMemType(IntEnum):
    """Where a kernel wants one of its inputs or leaves one of its outputs (ORT's ``OrtMemType``)."""

    CPU_INPUT = -2
    """The input is read on the host."""
    CPU_OUTPUT = -1
    """The output is written on the host."""
    DEFAULT = 0
    """The provider's own device memory."""


_DEVICE_TYPE_CODES = {"cpu": 0, "cuda": 1, "gpu": 1, "opencl": 1, "fpga": 2, "npu": 3, "cann": 3, "dml": 4, "webgpu": 5}


@dataclass(frozen=True, slots=True)
class OrtDevice:
    """One device that holds tensors.

    Arrays of two different devices are never mixed: the host copies between them with a ``DataTransfer``.
    """

    name: str = "cpu"
    """Lower-case device type: ``cpu``, ``cuda``, ``opencl``, or a name of the provider's own."""
    index: int = 0
    """Which one of several devices of that type; not negative."""
    vendor: int = 0
    """PCI vendor id, 0 if it does not matter."""

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.lower():
            raise InvalidArgument(f"device name must be lower case and not empty, got {self.name!r}")
        if self.index < 0:
            raise InvalidArgument(f"device index must not be negative, got {self.index} for device '{self.name}'")

    @property
    def is_cpu(self) -> bool:
        """Whether the device's memory is ordinary host memory holding NumPy arrays."""
        return self.name == "cpu"

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Device by ONNX Runtime's name of it; ``vendor_id`` -1 means any."""
        return OrtDevice(ort_device_name.lower(), device_id, max(vendor_id, 0))

    def device_id(self) -> int:
        """Index of the device (ORT's spelling)."""
        return self.index

    def device_type(self) -> int:
        """ORT's code of the device type; types ORT does not know count as accelerators (1)."""
        return _DEVICE_TYPE_CODES.get(self.name, 1)

    def vendor_id(self) -> int:
        """PCI vendor id (ORT's spelling)."""
        return self.vendor

    def mem_type(self) -> int:
        """ORT's code of the memory type; always the device's default memory."""
        return int(OrtMemType.DEFAULT)

    def __str__(self) -> str:
        return f"{self.name}:{self.index}"


CPU_DEVICE = OrtDevice()
"""Ordinary host memory."""


@dataclass(frozen=True, slots=True)
class OrtMemoryInfo:
    """A kind of memory an ``Allocator`` hands out."""

    device: OrtDevice = CPU_DEVICE
    """Device that can address the memory."""
    name: str = ""
    """Allocator's name (ORT: ``Cpu``, ``Cuda``, ``CudaPinned``); that of the device's type unless another one is given."""
    mem_type: OrtMemType = OrtMemType.DEFAULT

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.device.name.capitalize())
