"""Softmax."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, register_float

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family."""
    register_float(registry, "Softmax", Softmax)


class Softmax(OpenClKernel):
    """Softmax along an axis; before version 13 along all dimensions from the axis on."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "softmax", "softmax")
        self._flattens = info.since_version < 13
        self._axis = info.attribute("axis", 1 if self._flattens else -1)

    def compute(self, x: OpenClArray) -> OpenClArray:
        axis = self._axis + len(x.shape) if self._axis < 0 else self._axis
        count = math.prod(x.shape[axis:]) if self._flattens else x.shape[axis]
        inner = 1 if self._flattens else math.prod(x.shape[axis + 1 :])
        out = self.new(x.shape)
        self.launch(x.size // count if count else 0, x, out, np.int32(count), np.int32(inner))
        return out
