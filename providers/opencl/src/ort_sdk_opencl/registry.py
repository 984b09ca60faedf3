"""The provider's kernels, built once per context."""

from __future__ import annotations

import functools

from ort_sdk.api import KernelRegistry
from ort_sdk.device import DeviceContext, device_registry

__all__ = ["kernel_registry"]


MOST_REGISTRIES = 4
"""That are kept when no session uses them: each keeps its context, whose pool has memory of the device."""


@functools.lru_cache(maxsize=MOST_REGISTRIES)
def kernel_registry(context: DeviceContext) -> KernelRegistry:
    """The registry of a context, shared by all its sessions."""
    return device_registry("OpenCLExecutionProvider", context)
