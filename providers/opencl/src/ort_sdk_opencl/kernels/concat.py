"""Concat."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import InvalidArgument, KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, register_float

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family."""
    register_float(registry, "Concat", Concat)


class Concat(OpenClKernel):
    """Arrays joined along an axis, each copied to its columns."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "shape", "place")
        self._axis = info.attribute("axis", 1)

    def compute(self, *inputs: OpenClArray) -> OpenClArray:
        first = inputs[0].shape
        axis = self._axis + len(first) if self._axis < 0 else self._axis
        for array in inputs:
            if array.shape[:axis] + array.shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                shapes = ", ".join(str(list(other.shape)) for other in inputs)
                raise InvalidArgument(f"{self.info.describe()}: shapes {shapes} differ outside axis {axis}")
        joined = sum(array.shape[axis] for array in inputs)
        out = self.new((*first[:axis], joined, *first[axis + 1 :]))
        inner = math.prod(first[axis + 1 :])
        offset = 0
        for array in inputs:
            width = array.shape[axis] * inner
            self.launch(array.size, array, out, np.int32(width), np.int32(joined * inner), np.int32(offset))
            offset += width
        return out
