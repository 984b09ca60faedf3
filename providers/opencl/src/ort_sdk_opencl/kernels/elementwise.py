"""Add, Mul and Relu."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, decline_high_rank, int8_vector, register_float, row_major_strides

__all__ = ["broadcast_strides", "register"]


def register(registry: KernelRegistry) -> None:
    """Register the family. Add and Mul before version 7 broadcast by attributes and are left to others."""
    register_float(registry, "Add", functools.partial(Binary, entry="add"), since=7, when=decline_high_rank)
    register_float(registry, "Mul", functools.partial(Binary, entry="mul"), since=7, when=decline_high_rank)
    register_float(registry, "Relu", Relu)


class Binary(OpenClKernel):
    """A binary operator with NumPy's broadcasting."""

    def __init__(self, info: KernelInfo, entry: str) -> None:
        super().__init__(info, "elementwise", entry)

    def compute(self, a: OpenClArray, b: OpenClArray) -> OpenClArray:
        shape = np.broadcast_shapes(a.shape, b.shape)
        out = self.new(shape)
        self.launch(
            out.size,
            a,
            b,
            out,
            np.int32(len(shape)),
            int8_vector(shape),
            int8_vector(broadcast_strides(a.shape, shape)),
            int8_vector(broadcast_strides(b.shape, shape)),
        )
        return out


class Relu(OpenClKernel):
    """max(x, 0)."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "elementwise", "relu")

    def compute(self, x: OpenClArray) -> OpenClArray:
        out = self.new(x.shape)
        self.launch(out.size, x, out)
        return out


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> list[int]:
    """Strides that read an array of ``shape`` as if it had the shape ``target``."""
    padded = [1] * (len(target) - len(shape)) + list(shape)
    return [0 if dimension == 1 else stride for dimension, stride in zip(padded, row_major_strides(padded), strict=True)]
