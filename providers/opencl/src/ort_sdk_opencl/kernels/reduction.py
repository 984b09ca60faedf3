"""ReduceMean."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, decline_high_rank, int8_vector, register_float, row_major_strides

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family."""
    register_float(registry, "ReduceMean", ReduceMean, host_inputs=(1,), when=decline_high_rank)


class ReduceMean(OpenClKernel):
    """Mean over axes: an attribute before version 18, an input since."""

    shape_inputs = (1,)

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "reduction", "reduce_mean")
        self._axes = info.attribute("axes", None)
        self._keeps = bool(info.attribute("keepdims", 1))
        self._none_is_identity = bool(info.attribute("noop_with_empty_axes", 0))

    def compute(self, x: OpenClArray, axes: HostArray | None = None) -> OpenClArray:
        given = self._axes if axes is None else axes.tolist()
        rank = len(x.shape)
        if given:
            reduced = sorted({axis + rank if axis < 0 else axis for axis in given})
        else:
            reduced = [] if self._none_is_identity else list(range(rank))
        kept = [axis for axis in range(rank) if axis not in reduced]
        strides = row_major_strides(x.shape)
        out = self.new(tuple(1 if axis in reduced else x.shape[axis] for axis in range(rank) if self._keeps or axis in kept))
        self.launch(
            out.size,
            x,
            out,
            np.int32(len(kept)),
            int8_vector([x.shape[axis] for axis in kept]),
            int8_vector([strides[axis] for axis in kept]),
            np.int32(len(reduced)),
            int8_vector([x.shape[axis] for axis in reduced]),
            int8_vector([strides[axis] for axis in reduced]),
            np.int32(math.prod(x.shape[axis] for axis in reduced)),
        )
        return out
