"""``OrtMemoryInfo`` and ``OrtArenaCfg`` with ONNX Runtime's constructors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.api import OrtDevice as Device
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.foreign_errors import public_class
from ort_sdk.session.enums import OrtAllocatorType, OrtDeviceMemoryType, OrtMemoryInfoDeviceType, OrtMemType

__all__ = ["OrtArenaCfg", "OrtMemoryInfo"]

_ALLOCATOR_DEVICES = {"Cpu": "cpu", "Cuda": "cuda", "CudaPinned": "cpu", "OpenCL": "opencl"}
_TYPE_NAMES = {
    OrtMemoryInfoDeviceType.CPU: "cpu",
    OrtMemoryInfoDeviceType.GPU: "gpu",
    OrtMemoryInfoDeviceType.FPGA: "fpga",
    OrtMemoryInfoDeviceType.NPU: "npu",
}


@public_class()
class OrtMemoryInfo:
    """A kind of memory.

    Args:
        name: allocator's name: ``Cpu``, ``Cuda``, ``CudaPinned``, ``OpenCL``.
        allocator_type: kind of allocator.
        id: which one of several devices.
        mem_type: what the memory is for.

    Raises:
        Fail: no device goes with the name; ``create_v2`` takes any.
    """

    __slots__ = ("allocator_type", "device", "device_mem_type", "device_vendor_id", "mem_type", "name")

    def __init__(self, name: str, allocator_type: OrtAllocatorType, id: int, mem_type: OrtMemType) -> None:
        if name not in _ALLOCATOR_DEVICES:
            raise Fail(
                f"Specified device is not supported. Try CreateMemoryInfo_V2. Got '{name}', "
                f"known: {', '.join(_ALLOCATOR_DEVICES)}"
            )
        if not isinstance(allocator_type, OrtAllocatorType) or not isinstance(mem_type, OrtMemType):
            raise TypeError("incompatible constructor arguments: OrtMemoryInfo(str, OrtAllocatorType, int, OrtMemType)")
        self._fill(name, allocator_type, Device(_ALLOCATOR_DEVICES[name], id), mem_type)

    def _fill(self, name: str, allocator_type: OrtAllocatorType, device: Device, mem_type: OrtMemType) -> None:
        self.name = name
        self.allocator_type = allocator_type
        self.device = device
        self.mem_type = mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = device.vendor

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Memory of any device; ``alignment`` in bytes is accepted."""
        del alignment
        info = OrtMemoryInfo.of_device(Device(_TYPE_NAMES[device_type], device_id, vendor_id), name, allocator_type)
        info.device_mem_type = mem_type
        return info

    @staticmethod
    def of_device(
        device: Device, name: str = "", allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    ) -> OrtMemoryInfo:
        """Default memory of a device."""
        info = OrtMemoryInfo.__new__(OrtMemoryInfo)
        info._fill(name or device.name.capitalize(), allocator_type, device, OrtMemType.DEFAULT)
        return info

    @property
    def device_id(self) -> int:
        """Which one of several devices of its type."""
        return self.device.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtMemoryInfo) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (self.name, self.allocator_type, self.device, self.mem_type, self.device_mem_type)

    def __repr__(self) -> str:
        return f"OrtMemoryInfo({self.name!r}, {self.allocator_type.name}, {self.device_id}, {self.mem_type.name})"


@dataclass(slots=True)
@public_class()
class OrtArenaCfg:
    """How an arena grows. Accepted for ONNX Runtime's sake: host memory is NumPy's, device memory the provider's.

    Takes ``(max_mem, arena_extend_strategy, initial_chunk_size_bytes, max_dead_bytes_per_chunk)``, or one dictionary of
    the attributes below. -1 (0 for ``max_mem``) is the default of each.

    Raises:
        InvalidArgument: an unknown name, or a value that is no integer.
    """

    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    def __init__(self, *values: int | Mapping[str, int]) -> None:
        if len(values) == 1 and isinstance(values[0], Mapping):
            settings = dict(values[0])
        elif len(values) == 4:
            settings = dict(zip(_POSITIONAL, values, strict=True))  # type: ignore[arg-type]
        else:
            raise TypeError(f"incompatible constructor arguments: OrtArenaCfg takes a dict or {_POSITIONAL}, got {values!r}")
        for name, default in _ARENA_DEFAULTS.items():
            setattr(self, name, settings.pop(name, default))
            if not isinstance(getattr(self, name), int):
                raise InvalidArgument(f"OrtArenaCfg option {name} must be an int, got {getattr(self, name)!r}")
        if settings:
            raise InvalidArgument(f"Invalid OrtArenaCfg option: {', '.join(settings)}; known: {', '.join(_ARENA_DEFAULTS)}")


_ARENA_DEFAULTS = {
    "max_mem": 0,
    "arena_extend_strategy": -1,
    "initial_chunk_size_bytes": -1,
    "max_dead_bytes_per_chunk": -1,
    "initial_growth_chunk_size_bytes": -1,
    "max_power_of_two_extend_bytes": -1,
}
_POSITIONAL = ("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk")
