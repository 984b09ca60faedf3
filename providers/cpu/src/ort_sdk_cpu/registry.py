"""The CPU provider's kernels: the shared operator set over NumPy, and what NumPy does faster another way."""

from __future__ import annotations

import functools

import numpy as np

from ort_sdk.api import KernelRegistry
from ort_sdk.opset import add_opset

__all__ = ["kernel_registry"]


@functools.cache
def kernel_registry() -> KernelRegistry:
    """The registry, built once per process and shared by all sessions."""
    registry = KernelRegistry("CPUExecutionProvider")
    add_opset(registry, np)
    return registry
