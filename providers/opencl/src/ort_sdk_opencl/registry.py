"""The provider's kernels, built once per process."""

from __future__ import annotations

import functools

from ort_sdk.api import KernelRegistry

from .kernels import concat, conv, elementwise, matmul, reduction, shape, softmax

__all__ = ["kernel_registry"]


@functools.cache
def kernel_registry() -> KernelRegistry:
    """The registry, shared by all sessions."""
    registry = KernelRegistry("OpenCLExecutionProvider")
    for family in (elementwise, shape, concat, matmul, softmax, reduction, conv):
        family.register(registry)
    return registry
