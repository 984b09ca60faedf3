"""The provider's kernels, built once per context."""

from __future__ import annotations

import functools

from ort_sdk.api import KernelRegistry
from ort_sdk.device import DeviceContext, device_registry

__all__ = ["kernel_registry"]


@functools.lru_cache(maxsize=32)
def kernel_registry(name: str, context: DeviceContext) -> KernelRegistry:
    """The registry of a provider and context, shared by all its sessions."""
    return device_registry(name, context)
