"""Enumerations of the public API, with ONNX Runtime's names and numbers, but for those of session options."""

from __future__ import annotations

from enum import IntFlag

from .option_enums import NamedNumber

__all__ = [
    "ArenaExtendStrategy",
    "OrtAllocatorType",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
]


class ArenaExtendStrategy(NamedNumber):
    """How an arena grows."""

    kNextPowerOfTwo = 0  # noqa: N815 - ORT's name
    kSameAsRequested = 1  # noqa: N815 - ORT's name


class OrtAllocatorType(NamedNumber):
    """Kind of allocator behind a memory info."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(NamedNumber):
    """What memory is for, as seen from a provider."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(NamedNumber):
    """Kind of memory on a device."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(NamedNumber):
    """Type of the device a memory info is about."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(NamedNumber):
    """Type of a hardware device."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(NamedNumber):
    """PCI vendor ids."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtCompileApiFlags(IntFlag):
    """Options of ``ModelCompiler``."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(NamedNumber):
    """Whether a provider can run a compiled model."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(IntFlag):
    """Why a device does not work with a provider."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -2147483648


class OrtSparseFormat(NamedNumber):
    """Layout of a sparse tensor."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4
