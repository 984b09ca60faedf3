"""Operators that move elements: Concat, Transpose, Reshape and their like, Expand, DepthToSpace and SpaceToDepth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.copy import MIN_COPIED, CopyMaker, CopyWriter
from ort_sdk_cpu.kernel.runs import Pairs
from ort_sdk_cpu.kernel.writer import MakeWriter

__all__: list[str] = []


@bindable("Concat", any_type=True, any_layout=True)
def concat(info: KernelInfo, _compute: Any) -> MakeWriter:
    """The inputs one after another along an axis."""
    axis = info.attribute("axis", 1) if info.since_version == 1 else info.attribute("axis")

    return lambda _inputs, _outputs: _Concatenate(axis)


class _Concatenate:
    """Large interleaved inputs by a copy of each; others by NumPy's function, which needs no step of Python for each."""

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def __call__(self, *arrays: HostArray) -> None:
        *inputs, out = arrays
        is_interleaved = math.prod(out.shape[: self._axis % out.ndim]) > 1
        if is_interleaved and out.size >= len(inputs) * MIN_COPIED:
            CopyWriter(self._pairs)(*arrays)
        else:
            np.concatenate(inputs, axis=self._axis, out=out)

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        return CopyWriter(self._pairs).bind_arrays(*arrays)

    def _pairs(self, *arrays: HostArray) -> list[tuple[HostArray, HostArray]]:
        *inputs, out = arrays
        before, start, pairs = (slice(None),) * (self._axis % out.ndim), 0, []
        for array in inputs:
            stop = start + array.shape[self._axis]
            pairs.append((out[(*before, slice(start, stop))], array))
            start = stop
        return pairs


class _Viewing(BindableKernel):
    """A kernel that is bound where its result is no view of its input."""

    returns_views = True


@bindable("Flatten", "Reshape", "Squeeze", "Unsqueeze", any_type=True)
def reshape(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """The input's elements in their order."""
    return CopyMaker(lambda *arrays: [(arrays[-1].reshape(arrays[0].shape), arrays[0])])


@bindable("Transpose", any_type=True)
def transpose(info: KernelInfo, _compute: Any) -> MakeWriter:
    """The input with its axes in another order."""
    order = info.attribute("perm", None)
    return CopyMaker(lambda x, out: [(out, x.transpose(order))])


@kernel_maker("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
def viewing(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The kernel, which is bound where it has to copy."""
    return _Viewing(kernel, make_writer)


@bindable("Expand", any_type=True)
def expand(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """The input repeated along broadcast axes."""
    return CopyMaker(lambda x, _shape, out: [(out, np.broadcast_to(x, out.shape))])


@bindable("DepthToSpace", any_type=True)
def depth_to_space(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Blocks of channels as blocks of pixels."""
    size, columns_first = int(info.attribute("blocksize")), info.attribute("mode", "DCR") == "CRD"

    def pairs(x: HostArray, out: HostArray) -> Pairs:
        batch, channels, height, width = out.shape
        split = (channels, size, size) if columns_first else (size, size, channels)
        axes = (0, 1, 4, 2, 5, 3) if columns_first else (0, 3, 4, 1, 5, 2)
        blocks = x.reshape(batch, *split, height // size, width // size)
        return [(out.reshape(batch, channels, height // size, size, width // size, size), blocks.transpose(axes))]

    return CopyMaker(pairs)


@bindable("SpaceToDepth", any_type=True)
def space_to_depth(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Blocks of pixels as channels."""
    size, columns_first = int(info.attribute("blocksize")), info.attribute("mode", "DCR") == "CRD"

    def pairs(x: HostArray, out: HostArray) -> Pairs:
        batch, channels, height, width = x.shape
        blocks = x.reshape(batch, channels, height // size, size, width // size, size)
        split = (channels, size, size) if columns_first else (size, size, channels)
        axes = (0, 1, 3, 5, 2, 4) if columns_first else (0, 3, 5, 1, 2, 4)
        return [(out.reshape(batch, *split, height // size, width // size), blocks.transpose(axes))]

    return CopyMaker(pairs)
