"""Expand and Tile: repeated elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

from .common import normalize_axis

__all__ = ["expand", "tile", "tile_1"]


@operator("Expand", moves=True, shape_inputs=(1,), host_inputs=(1,), alias=((0, 0),))
def expand(info: KernelInfo, xp: Any) -> Compute:
    """The input broadcast together with a shape, by NumPy's rule in both directions; a view."""

    def compute(x: Array, shape: HostArray) -> Array:
        target = tuple(shape.tolist())
        own = x.shape
        # NumPy's own function takes longer than the rest.
        if len(target) <= len(own) and all(map(_keeps, target, own[len(own) - len(target) :])):
            return x
        try:
            broadcast = np.broadcast_shapes(x.shape, target)
        except ValueError:
            raise InvalidArgument(
                f"{info.describe()}: cannot broadcast {tuple(x.shape)} with {target}; dimensions must be equal or 1"
            ) from None
        return xp.broadcast_to(x, require_size(info.describe(), broadcast, item_bytes(x.dtype)))

    return compute


def _keeps(wanted: int, own: int) -> bool:
    """Whether a dimension stays as it is."""
    return wanted in {1, own}


@operator("Tile", until=1, moves=True, shape_inputs=(1, 2), host_inputs=(1, 2))
def tile_1(info: KernelInfo, xp: Any) -> Compute:
    """The input ``tiles`` times along ``axis``, both one-element inputs."""

    def compute(x: Array, tiles: HostArray, axis: HostArray) -> Array:
        repeats = [1] * x.ndim
        count = int(tiles.reshape(-1)[0])
        if count < 0:
            raise InvalidArgument(f"{info.describe()}: tiles is {count}; it must not be negative")
        repeats[normalize_axis(info, int(axis.reshape(-1)[0]), x.ndim)] = count
        return xp.tile(x, tuple(repeats))

    return compute


@operator("Tile", since=6, moves=True, shape_inputs=(1,), host_inputs=(1,))
def tile(info: KernelInfo, xp: Any) -> Compute:
    """The input repeated ``repeats[i]`` times along each axis i."""
    function = xp.tile

    def compute(x: Array, repeats: HostArray) -> Array:
        counts = tuple(repeats.tolist())
        if len(counts) != x.ndim or min(counts, default=0) < 0:
            raise InvalidArgument(f"{info.describe()}: repeats {counts} must hold a count ≥ 0 for each axis of {tuple(x.shape)}")
        return function(x, counts)

    return compute
