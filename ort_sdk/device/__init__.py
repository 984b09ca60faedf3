"""The device layer: kernels written once for every device with a C-like kernel language.

A provider brings a ``Launcher`` and a ``Dialect``, and gets ONNX's operators: ``device_registry``.
"""

from .array import DeviceArray
from .context import DeviceContext
from .device_class import CPU_CLASS, GPU_CLASS, DeviceClass
from .dialects import CUDA, OPENCL, OPENCL_SUBGROUPS, Dialect
from .external_data import DeviceExternalDataLoader
from .launcher import BoundLaunches, Launcher, MovingMemory, SupportsRuns
from .launches import Argument, KernelSource, Launch, Memory, Scalar, packed_scalar
from .operators.registry import device_registry
from .programs.capture import CapturedCall
from .programs.fusion import fuse_neighbours
from .provider import DeviceAllocator, DeviceDataTransfer, DeviceExecutionProvider
from .run_events import RunEvent

__all__ = [
    "CPU_CLASS",
    "CUDA",
    "GPU_CLASS",
    "OPENCL",
    "OPENCL_SUBGROUPS",
    "Argument",
    "BoundLaunches",
    "CapturedCall",
    "DeviceAllocator",
    "DeviceArray",
    "DeviceClass",
    "DeviceContext",
    "DeviceDataTransfer",
    "DeviceExecutionProvider",
    "DeviceExternalDataLoader",
    "Dialect",
    "KernelSource",
    "Launch",
    "Launcher",
    "Memory",
    "MovingMemory",
    "RunEvent",
    "Scalar",
    "SupportsRuns",
    "device_registry",
    "fuse_neighbours",
    "packed_scalar",
]
