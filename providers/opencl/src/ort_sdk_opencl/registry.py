"""The provider's kernels, built once per device and process."""

from __future__ import annotations

import functools

from ort_sdk.api import KernelRegistry
from ort_sdk.device import device_registry

from .device import device_context

__all__ = ["kernel_registry"]


@functools.cache
def kernel_registry(device_index: int) -> KernelRegistry:
    """The registry of a device, shared by all sessions."""
    return device_registry("OpenCLExecutionProvider", device_context(device_index))
