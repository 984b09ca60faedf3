"""Conv."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import InvalidArgument, KernelInfo, KernelRegistry
from ort_sdk_opencl.array import OpenClArray

from .launch import OpenClKernel, int8_vector, register_float

__all__ = ["register"]


def register(registry: KernelRegistry) -> None:
    """Register the family."""
    register_float(registry, "Conv", Conv, when=_decline)


def _decline(info: KernelInfo) -> str | None:
    rank = info.input_rank(0)
    if min(info.attribute("pads", None) or (0,)) < 0:
        return "negative pads cut the input"
    return None if rank == 4 else f"two-dimensional convolution only; the input's rank is {'not known' if rank is None else rank}"


class Conv(OpenClKernel):
    """Two-dimensional convolution with groups, dilations, padding and bias."""

    def __init__(self, info: KernelInfo) -> None:
        super().__init__(info, "conv", "conv2d")
        self._groups = info.attribute("group", 1)
        self._strides = info.attribute("strides", [1, 1])
        self._dilations = info.attribute("dilations", [1, 1])
        self._pads = info.attribute("pads", [0, 0, 0, 0])
        self._auto_pad = info.attribute("auto_pad", "NOTSET")

    def compute(self, x: OpenClArray, w: OpenClArray, bias: OpenClArray | None = None) -> OpenClArray:
        if x.shape[1] != w.shape[1] * self._groups:
            raise InvalidArgument(
                f"{self.info.describe()}: input {list(x.shape)} has {x.shape[1]} channels, weights {list(w.shape)} in "
                f"{self._groups} groups need {w.shape[1] * self._groups}"
            )
        extents = [(w.shape[2 + axis] - 1) * self._dilations[axis] + 1 for axis in range(2)]
        pads = [self._padding(axis, x.shape[2 + axis], extents[axis]) for axis in range(2)]
        size = [(x.shape[2 + axis] + sum(pads[axis]) - extents[axis]) // self._strides[axis] + 1 for axis in range(2)]
        out = self.new((x.shape[0], w.shape[0], max(size[0], 0), max(size[1], 0)))
        self.launch(
            out.size,
            x,
            w,
            w if bias is None else bias,
            np.int32(bias is not None),
            out,
            int8_vector([*x.shape, self._groups]),
            int8_vector(out.shape),
            int8_vector(w.shape[2:]),
            int8_vector([*self._strides, pads[0][0], pads[1][0], *self._dilations]),
        )
        return out

    def _padding(self, axis: int, size: int, extent: int) -> tuple[int, int]:
        if self._auto_pad == "NOTSET":
            return self._pads[axis], self._pads[axis + 2]
        if self._auto_pad == "VALID":
            return 0, 0
        stride = self._strides[axis]
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        return (small, large) if self._auto_pad == "SAME_UPPER" else (large, small)
