"""Reshape and Transpose."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, KernelInfo, KernelRegistry, OpKernel
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, decline_high_rank, int8_vector, register_float, row_major_strides

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family. Reshape-1, whose shape is an attribute, is left to others."""
    register_float(registry, "Reshape", Reshape, since=5, host_inputs=(1,), alias=((0, 0),))
    register_float(registry, "Transpose", Transpose, when=decline_high_rank)


class Reshape(OpKernel):
    """The same buffer under another shape."""

    deterministic = True
    shape_inputs = (1,)

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._allow_zero = bool(info.attribute("allowzero", 0))

    def compute(self, x: OpenClArray, shape: HostArray) -> OpenClArray:
        target = [int(dimension) for dimension in shape]
        if not self._allow_zero:
            target = [x.shape[axis] if dimension == 0 else dimension for axis, dimension in enumerate(target)]
        if -1 in target:
            known = -math.prod(target)
            target[target.index(-1)] = x.size // known if known else 0
        if math.prod(target) != x.size:
            raise InvalidArgument(
                f"{self._info.describe()}: cannot give {x.size} elements, shape {list(x.shape)}, the shape {shape.tolist()}"
            )
        return x.reshaped(tuple(target))


class Transpose(OpenClKernel):
    """Axes permuted."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "shape", "transpose")
        self._axes = info.attribute("perm", None)

    def compute(self, x: OpenClArray) -> OpenClArray:
        axes = self._axes or list(range(len(x.shape)))[::-1]
        strides = row_major_strides(x.shape)
        out = self.new(tuple(x.shape[axis] for axis in axes))
        self.launch(out.size, x, out, np.int32(len(axes)), int8_vector(out.shape), int8_vector([strides[axis] for axis in axes]))
        return out
