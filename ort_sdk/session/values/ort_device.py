"""``OrtDevice`` with ONNX Runtime's spelling, around the contract's value type."""

from __future__ import annotations

from ort_sdk.api import CPU_DEVICE, Fail
from ort_sdk.api import OrtDevice as Device
from ort_sdk.api.foreign_errors import public_class
from ort_sdk.plugins import plugin_manager

__all__ = ["OrtDevice", "device_of"]

_TYPE_CODES = {"cpu": 0, "gpu": 1, "cuda": 1, "dml": 1, "webgpu": 1, "fpga": 2, "npu": 3, "cann": 3}
_VENDORS = {"cuda": "NVIDIA", "cann": "HUAWEI", "dml": "MICROSOFT"}
_NAMES_OF_CODES = {0: "cpu", 1: "gpu", 2: "fpga", 3: "npu"}


@public_class()
class OrtDevice:
    """A device.

    Args:
        device_type: ONNX Runtime's code (``OrtDevice.cpu()``), or the device's name.
        mem_type: kind of memory; only the default is used.
        vendor_id: PCI vendor, 0 for any.
        device_id: which one of several.
    """

    __slots__ = ("_mem_type", "_vendor_id", "device")

    def __init__(self, device_type: int | str, mem_type: int = 0, vendor_id: int = 0, device_id: int = 0) -> None:
        name = device_type if isinstance(device_type, str) else _NAMES_OF_CODES.get(device_type, "")
        self.device = Device(name, device_id)
        self._mem_type = mem_type
        self._vendor_id = vendor_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Device by name: ``cpu``, one of ONNX Runtime's names (``cuda``, ``gpu``, …) or of an installed provider's device.

        Raises:
            Fail: nothing of that name is known.
        """
        if ort_device_name not in _TYPE_CODES and ort_device_name not in {device.name for device in _provider_devices()}:
            known = sorted({*_TYPE_CODES, *(device.name for device in _provider_devices())})
            raise Fail(f"Unsupported device type: {ort_device_name}; known are {', '.join(known)}")
        vendor = _vendor_of(ort_device_name) if vendor_id < 0 else int(vendor_id)
        return OrtDevice(ort_device_name, 0, vendor, device_id)

    def device_id(self) -> int:
        """Which one of several devices of its type."""
        return self.device.index

    def device_type(self) -> int:
        """ONNX Runtime's code of the type; devices it does not know count as accelerators (1)."""
        return _TYPE_CODES.get(self.device.name, 1)

    def device_vendor_id(self) -> int:
        """PCI vendor id; 0 for any."""
        return self._vendor_id

    def device_mem_type(self) -> int:
        """Kind of memory."""
        return self._mem_type

    vendor_id = device_vendor_id
    mem_type = device_mem_type

    @staticmethod
    def cpu() -> int:
        """Code of host devices."""
        return 0

    @staticmethod
    def gpu() -> int:
        """Code of GPUs."""
        return 1

    cuda = dml = webgpu = gpu

    @staticmethod
    def fpga() -> int:
        """Code of FPGAs."""
        return 2

    @staticmethod
    def npu() -> int:
        """Code of NPUs."""
        return 3

    cann = npu

    @staticmethod
    def default_memory() -> int:
        """Code of a device's default memory."""
        return 0

    def _get_c_device(self) -> OrtDevice:
        """The device itself; clients of ONNX Runtime's inner class ask for it."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"OrtDevice({self.device})"


def device_of(device: OrtDevice | Device | str, device_id: int = 0) -> Device:
    """The contract's device for a public one, or for a name.

    ``gpu`` is the first accelerator of any installed provider.

    Raises:
        Fail: no installed provider has such a device.
    """
    if device == CPU_DEVICE.name and device_id == 0:
        return CPU_DEVICE
    if isinstance(device, str):
        device = OrtDevice.make(device, device_id)
    wanted = device.device if isinstance(device, OrtDevice) else device
    if wanted.is_cpu:
        return CPU_DEVICE
    for candidate in _provider_devices():
        if candidate.index == wanted.index and (candidate.name == wanted.name or (wanted.name == "gpu" and not candidate.is_cpu)):
            return candidate
    present = ", ".join(str(candidate) for candidate in _provider_devices()) or "none"
    raise Fail(f"Can't allocate memory on the device {wanted}: no installed provider has it; devices are: {present}")


def _provider_devices() -> list[Device]:
    return [device for handle in plugin_manager().available_providers() for device in handle.devices]


def _vendor_of(name: str) -> int:
    """PCI vendor of devices of a name; 0 where it is not known."""
    from ort_sdk.session.enums import OrtDeviceVendorId

    return int(OrtDeviceVendorId[_VENDORS.get(name, "NONE")])
