"""GridSample and AffineGrid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import item_bytes, require_size

from .common import zero_of

__all__ = ["affine_grid", "grid_sample"]

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
_PADDING_MODES = ("zeros", "border", "reflection")


class _Axis:
    """Sampling along one spatial axis: from normalised coordinates to pixels."""

    def __init__(self, xp: Any, size: int, padding: str, *, align_corners: bool) -> None:
        self.xp, self.size, self.padding, self.align_corners = xp, size, padding, align_corners

    def coordinates(self, grid: Array) -> Array:
        """Positions in pixels of coordinates in [-1, 1]; NaN counts as outside."""
        scaled = (grid + 1.0) * ((self.size - 1) / 2) if self.align_corners else ((grid + 1.0) * self.size - 1.0) / 2
        return self.xp.where(self.xp.isnan(scaled), self.xp.full_like(scaled, -1.0), scaled)

    def padded(self, position: Array) -> Array:
        """Positions brought inside by border or reflection; unchanged for zeros."""
        if self.padding == "border":
            return self.xp.clip(position, 0.0, float(self.size - 1))
        return self._reflected(position) if self.padding == "reflection" else position

    def _reflected(self, position: Array) -> Array:
        low, span = (0.0, self.size - 1.0) if self.align_corners else (-0.5, float(self.size))
        if span == 0:
            return self.xp.zeros_like(position)
        distance = self.xp.remainder(self.xp.abs(position - low), 2 * span)
        return self.xp.minimum(distance, 2 * span - distance) + low

    def pixel(self, position: Array) -> tuple[Array, Array | None]:
        """int64 pixel of a whole position, and where it is inside (None: everywhere)."""
        last = float(self.size - 1)
        inside = (position >= 0.0) & (position <= last) if self.padding == "zeros" else None
        return self.xp.astype(self.xp.clip(position, 0.0, last), TensorElementType.INT64), inside

    def taps(self, grid: Array, mode: str) -> list[tuple[Array, Array | None, Array | None]]:
        """(pixel, inside, weight) of each pixel that takes part; no weight means 1."""
        xp, position = self.xp, self.coordinates(grid)
        if mode == "nearest":
            return [(*self.pixel(xp.round(self.padded(position))), None)]
        if mode == "linear":
            position = self.padded(position)
            low = xp.floor(position)
            weights = [1.0 - (position - low), position - low]
            return [(*self.pixel(low + offset), weight) for offset, weight in zip((0.0, 1.0), weights, strict=True)]
        low = xp.floor(position)
        weights = _cubic_weights(position - low)
        return [
            (*self.pixel(self.padded(low + offset)), weight)
            for offset, weight in zip((-1.0, 0.0, 1.0, 2.0), weights, strict=True)
        ]


def _cubic_weights(fraction: Array, a: float = -0.75) -> list[Array]:
    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1.0

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(fraction + 1.0), near(fraction), near(1.0 - fraction), far(2.0 - fraction)]


def _joined(taps: tuple[Any, ...], sizes: tuple[int, ...]) -> tuple[Array, Array | None, Array | None]:
    """One tap per axis as one tap of the flattened image."""
    position, inside, weight = taps[0]
    for (pixel, pixel_inside, pixel_weight), size in zip(taps[1:], sizes[1:], strict=True):
        position = position * size + pixel
        inside = pixel_inside if inside is None else inside & pixel_inside
        weight = pixel_weight if weight is None else weight * pixel_weight
    return position, inside, weight


def _gathered(xp: Any, rows: Array, starts: Array, taps: Iterator[Any]) -> Array:
    """Sum of weighted pixels, as (batch, points, channels), from pixels as rows (batch · pixels, channels)."""
    total: Any = None
    for position, inside, weight in taps:
        values = xp.gather(rows, position + starts, 0)
        if inside is not None:
            values = xp.where(xp.expand_dims(inside, axis=-1), values, zero_of(xp, values.dtype))
        if weight is not None:
            values = values * xp.expand_dims(weight, axis=-1)
        total = values if total is None else total + values
    return total


@operator("GridSample")
def grid_sample(info: KernelInfo, xp: Any) -> Compute:
    """(N, C, *output) values of X (N, C, *spatial) at the grid's positions (N, *output, spatial rank), x first."""
    mode, padding = info.attribute("mode", "linear"), info.attribute("padding_mode", "zeros")
    if mode not in _MODES or padding not in _PADDING_MODES:
        raise InvalidArgument(
            f"{info.describe()}: mode '{mode}' must be one of {', '.join(_MODES)}, and padding_mode '{padding}' one of "
            f"{', '.join(_PADDING_MODES)}"
        )
    align_corners = bool(info.attribute("align_corners", 0))
    doubles = TensorElementType.DOUBLE in {info.input_element_type(0), info.input_element_type(1)}
    compute_type = TensorElementType.DOUBLE if doubles else TensorElementType.FLOAT
    output_type = info.input_element_type(0)

    def compute(x: Array, grid: Array) -> Array:
        sizes, batch, channels, output = tuple(x.shape[2:]), x.shape[0], x.shape[1], grid.shape[1:-1]
        if grid.shape[0] != batch or grid.shape[-1] != len(sizes) or grid.ndim != x.ndim:
            raise InvalidArgument(
                f"{info.describe()}: grid {grid.shape} does not fit X {x.shape}; "
                f"expected ({batch}, ..., {len(sizes)}), of the same rank"
            )
        points = xp.reshape(xp.astype(grid, compute_type), (batch, math.prod(output), len(sizes)))
        pixels = x if _MODES[mode] == "nearest" else xp.astype(x, compute_type)
        rows = xp.reshape(xp.permute_dims(pixels, (0, *range(2, x.ndim), 1)), (batch * math.prod(sizes), channels))
        starts = xp.reshape(xp.arange(batch, dtype=xp.int64) * math.prod(sizes), (batch, 1))
        taps = [
            _Axis(xp, size, padding, align_corners=align_corners).taps(points[..., len(sizes) - 1 - axis], _MODES[mode])
            for axis, size in enumerate(sizes)
        ]
        total = _gathered(xp, rows, starts, (_joined(combination, sizes) for combination in itertools.product(*taps)))
        moved = xp.reshape(xp.permute_dims(total, (0, 2, 1)), (batch, channels, *output))
        return moved if output_type is None or moved.dtype == x.dtype else xp.astype(moved, output_type)

    return compute


@operator("AffineGrid", shape_inputs=(1,), host_inputs=(1,))
def affine_grid(info: KernelInfo, xp: Any) -> Compute:
    """(N, *spatial, rank) positions that each matrix theta (N, rank, rank + 1) maps an even grid over [-1, 1] to."""
    align_corners = bool(info.attribute("align_corners", 0))

    def even(size: int, dtype: Any) -> Array:
        if not align_corners:
            return (xp.arange(size, dtype=dtype) * 2.0 + 1.0) / size - 1.0
        return xp.linspace(-1.0, 1.0, size, dtype=dtype)

    def compute(theta: Array, size: HostArray) -> Array:
        batch, _, *spatial = size.tolist()
        rank = len(spatial)
        if tuple(theta.shape) != (batch, rank, rank + 1):
            raise InvalidArgument(
                f"{info.describe()}: theta {theta.shape} does not fit size {size.tolist()}; expected {(batch, rank, rank + 1)}"
            )
        require_size(info.describe(), (*size.tolist(), rank + 1), item_bytes(theta.dtype))
        axes = xp.meshgrid(*(even(extent, theta.dtype) for extent in spatial), indexing="ij")
        points = xp.stack(
            [*(xp.reshape(axis, (-1,)) for axis in axes[::-1]), xp.ones((math.prod(spatial),), dtype=theta.dtype)], axis=-1
        )
        return xp.reshape(xp.matmul(points, xp.matrix_transpose(theta)), (batch, *spatial, rank))

    return compute
