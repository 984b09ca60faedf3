"""MatMul."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import InvalidArgument, KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .elementwise import broadcast_strides
from .launch import OpenClKernel, decline_high_rank, int8_vector, register_float

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family."""
    register_float(registry, "MatMul", MatMul, when=decline_high_rank)


class MatMul(OpenClKernel):
    """NumPy's matmul: batches broadcast, vectors are promoted and the added dimension dropped."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "matmul", "matmul")

    def compute(self, a: OpenClArray, b: OpenClArray) -> OpenClArray:
        left = a.shape if len(a.shape) > 1 else (1, *a.shape)
        right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
        rows, inner, columns = left[-2], left[-1], right[-1]
        if right[-2] != inner:
            raise InvalidArgument(f"{self.info.describe()}: {list(a.shape)} @ {list(b.shape)}: inner dimensions differ")
        batch = np.broadcast_shapes(left[:-2], right[:-2])
        out = self.new((*batch, rows, columns))
        self.launch(
            out.size,
            a,
            b,
            out,
            *(np.int32(number) for number in (rows, columns, inner, len(batch))),
            int8_vector(batch),
            int8_vector(broadcast_strides(left[:-2], batch)),
            int8_vector(broadcast_strides(right[:-2], batch)),
        )
        shape = (*batch, *([rows] if len(a.shape) > 1 else []), *([columns] if len(b.shape) > 1 else []))
        return out.reshaped(shape)
