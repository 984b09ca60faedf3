"""DeformConv: windows sampled between grid points by linear interpolation, then one GEMM."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

from .conv import add_bias, check_channels
from .windows import WindowAttributes, Windows

__all__ = ["deform_conv"]


def _displaced_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Input, weight, offsets and mask of as many axes, and a bias for each channel of the result."""
    shapes.match(0, "X", ("batch", "inputs", ...))
    spatial = [None for _ in (shapes.of(0) or ())[2:]]
    shapes.match(1, "W", ("outputs", "inputs of a group", *spatial))
    shapes.match(2, "offset", ("batch", None, *spatial))
    shapes.match(3, "B", ("outputs",))
    shapes.match(4, "mask", ("batch", None, *spatial))


@operator("DeformConv", shapes=_displaced_shapes)
def deform_conv(info: KernelInfo, xp: Any) -> Compute:
    """Convolution whose taps are displaced by learned offsets, over any number of spatial axes."""
    attributes = WindowAttributes.of(info)
    groups = int(info.attribute("group", 1))
    offset_groups = int(info.attribute("offset_group", 1))

    def compute(x: Array, weight: Array, offset: Array, bias: Array | None = None, mask: Array | None = None) -> Array:
        check_channels(info, x.shape, weight.shape, groups)
        windows = attributes.windows(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        rank, taps = x.ndim - 2, math.prod(windows.kernel_shape)
        _check_offset(info, x.shape, offset, "offset", offset_groups * taps * rank, windows)
        positions = _positions(xp, offset, windows, offset_groups)
        samples = _sample(xp, x, positions, offset_groups)
        if mask is not None:
            _check_offset(info, x.shape, mask, "mask", offset_groups * taps, windows)
            samples = samples * xp.reshape(mask, (x.shape[0], offset_groups, 1, samples.shape[3]))
        batch, outputs = x.shape[0], weight.shape[0]
        columns = xp.reshape(samples, (batch, groups, x.shape[1] // groups * taps, math.prod(windows.output_shape)))
        y = xp.matmul(xp.reshape(weight, (groups, outputs // groups, -1)), columns)
        return add_bias(xp, xp.reshape(y, (batch, outputs, *windows.output_shape)), bias)

    return compute


def _check_offset(info: KernelInfo, x_shape: tuple[int, ...], array: Array, name: str, channels: int, windows: Windows) -> None:
    expected = (x_shape[0], channels, *windows.output_shape)
    if tuple(array.shape) != expected:
        raise InvalidArgument(f"{info.describe()}: {name} has shape {list(array.shape)}; it must be {list(expected)}")


def _positions(xp: Any, offset: Array, windows: Windows, offset_groups: int) -> list[Array]:
    """Where each tap samples the input, per spatial axis: (N, offset groups, 1, taps * outputs), in input elements."""
    rank, taps = len(windows.kernel_shape), math.prod(windows.kernel_shape)
    shifts = xp.reshape(offset, (offset.shape[0], offset_groups, taps, rank, *windows.output_shape))
    positions = []
    for axis in range(rank):
        grid = windows.tap_positions(axis).astype("float32" if offset.dtype == xp.float32 else "float64")
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = grid.shape
        # (kernel..., output...) to (taps, output...): only this axis' kernel and output sizes differ from 1.
        grid = xp.broadcast_to(xp.reshape(xp.from_host(grid), tuple(shape)), (*windows.kernel_shape, *shape[rank:]))
        where = shifts[:, :, :, axis, ...] + xp.reshape(grid, (taps, *shape[rank:]))
        positions.append(xp.reshape(where, (*where.shape[:2], 1, math.prod(where.shape[2:]))))
    return positions


def _sample(xp: Any, x: Array, positions: list[Array], offset_groups: int) -> Array:
    """Linear interpolation of (N, C, *spatial) at positions, zero outside: (N, offset groups, C / groups, taps * outputs)."""
    batch, channels, *spatial = x.shape
    flat = xp.reshape(x, (batch, offset_groups, channels // offset_groups, math.prod(spatial)))
    low = [xp.floor(position) for position in positions]
    total = xp.zeros((*flat.shape[:3], low[0].shape[3]), dtype=x.dtype)
    for corner in itertools.product((0, 1), repeat=len(spatial)):
        index, factor = _corner(xp, positions, [below + upper for below, upper in zip(low, corner, strict=True)], spatial)
        values = xp.take_along_axis(flat, xp.broadcast_to(index, total.shape), axis=3)
        total += values * factor
    return total


def _corner(xp: Any, positions: list[Array], grid_points: list[Array], spatial: list[int]) -> tuple[Array, Array]:
    """Flat index of the grid points, and their share in the samples at ``positions``: zero outside the input."""
    index, factor = xp.zeros(grid_points[0].shape, dtype=xp.int64), xp.ones(grid_points[0].shape, dtype=grid_points[0].dtype)
    for position, grid_point, size in zip(positions, grid_points, spatial, strict=True):
        inside = (grid_point >= 0) & (grid_point <= size - 1)
        factor = xp.where(inside, factor * (1 - xp.abs(position - grid_point)), xp.zeros_like(factor))
        index = index * size + xp.module.astype(xp.where(inside, grid_point, xp.zeros_like(grid_point)), xp.int64)
    return index, factor
