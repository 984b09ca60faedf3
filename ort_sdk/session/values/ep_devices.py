"""Devices of the installed providers, as ONNX Runtime's automatic choice of providers sees them."""

from __future__ import annotations

import platform

from ort_sdk.api import Fail
from ort_sdk.api import OrtDevice as Device
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.api.foreign_errors import only_ort_errors
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.enums import OrtDeviceMemoryType, OrtHardwareDeviceType

from .memory_info import OrtMemoryInfo

__all__ = ["OrtEpDevice", "OrtHardwareDevice", "OrtSyncStream", "get_ep_devices", "get_hardware_devices"]


@dataclass(frozen=True, slots=True)
class OrtHardwareDevice:
    """A piece of hardware."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class OrtEpDevice:
    """A device as one provider sees it."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ort_device: Device
    """The device in this package's own terms."""
    ep_metadata: dict[str, str] = field(default_factory=dict, hash=False)
    ep_options: dict[str, str] = field(default_factory=dict, hash=False)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """Memory of that type; None for ordinary host memory and for types the device does not have."""
        if self.ort_device.is_cpu or memory_type is not OrtDeviceMemoryType.DEFAULT:
            return None
        return OrtMemoryInfo.of_device(self.ort_device)

    def create_sync_stream(self) -> OrtSyncStream:
        """A stream of the device.

        Raises:
            Fail: the device is the host, which has no streams.
        """
        if self.ort_device.is_cpu:
            raise Fail("ep_device does not use DEFAULT memory of a non-CPU device.")
        return OrtSyncStream(self.ort_device)


@dataclass(frozen=True, slots=True)
class OrtSyncStream:
    """A stream of a device. The provider orders its own work; the handle only names the device's default stream."""

    device: Device

    def get_handle(self) -> int:
        """Handle of the device's default stream."""
        return 0


@only_ort_errors
def get_ep_devices() -> list[OrtEpDevice]:
    """Devices of all usable providers, accelerators first, the CPU provider's last."""
    return [
        OrtEpDevice(
            ep_name=handle.name,
            ep_vendor=handle.record.distribution or "in-process",
            device=_hardware(device),
            ort_device=device,
            ep_metadata={"version": handle.record.version},
        )
        for handle in plugin_manager().available_providers()
        for device in handle.devices
    ]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The hardware behind ``get_ep_devices``, each once."""
    found: list[OrtHardwareDevice] = []
    for device in get_ep_devices():
        if device.device not in found:
            found.append(device.device)
    return found


def _hardware(device: Device) -> OrtHardwareDevice:
    if device.is_cpu:
        return OrtHardwareDevice(OrtHardwareDeviceType.CPU, platform.processor() or platform.machine(), 0, 0)
    kind = OrtHardwareDeviceType.NPU if device.name in ("npu", "cann") else OrtHardwareDeviceType.GPU
    return OrtHardwareDevice(kind, device.name, device.vendor, device.index)
