"""Conv: im2col, then one GEMM."""

from __future__ import annotations

import math
from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.input_shapes import InputShapes

from .windows import WindowAttributes, Windows, columns, im2col, window_view

__all__ = ["add_bias", "check_channels", "convolve", "weight_shapes"]

COLUMN_ELEMENTS = 1 << 21
"""Largest column matrix made at once; more output rows are computed in blocks, which keeps memory flat."""
DEPTHWISE_ELEMENTS = 1 << 18
"""Largest column matrix of a block of channels: 1 MiB of floats, which stays in the cache."""


def weight_shapes(_info: KernelInfo, shapes: InputShapes) -> None:
    """Those of convolutions: input and weight of as many axes, and a bias for each channel of the result."""
    shapes.match(0, "X", ("batch", "inputs", ...))
    shapes.match(1, "W", ("outputs", "inputs of a group", *(None for _ in (shapes.of(0) or ())[2:])))
    shapes.match(2, "B", ("outputs",))


@operator("Conv", shapes=weight_shapes)
def conv(info: KernelInfo, xp: Any) -> Compute:
    """Convolution over any number of spatial axes, with groups, dilations and padding."""
    attributes = WindowAttributes.of(info)
    groups = int(info.attribute("group", 1))

    def compute(x: Array, weight: Array, bias: Array | None = None) -> Array:
        check_channels(info, x.shape, weight.shape, groups)
        windows = attributes.windows(tuple(x.shape[2:]), tuple(weight.shape[2:]))
        return add_bias(xp, convolve(xp, x, weight, windows, groups), bias)

    return compute


def check_channels(info: KernelInfo, x_shape: tuple[int, ...], weight_shape: tuple[int, ...], groups: int) -> None:
    """Check ranks and channels of an input (N, C, *spatial) and a weight (M, C / groups, *kernel).

    Raises:
        InvalidArgument: they do not fit together.
    """
    fits = len(x_shape) == len(weight_shape) >= 3
    if not fits or x_shape[1] != weight_shape[1] * groups or weight_shape[0] % groups:
        raise InvalidArgument(
            f"{info.describe()}: input X has shape {list(x_shape)}, weight W has {list(weight_shape)}, group is {groups};"
            " X must be (N, C, *spatial) and W (M, C / group, *kernel) with M a multiple of group"
        )


def convolve(xp: Any, x: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """Convolution without bias: (N, C, *spatial) and (M, C / groups, *kernel) to (N, M, *output)."""
    if weight.shape[1] == 1 and groups > 1:
        return _depthwise(xp, x, weight, windows)
    batch, outputs = x.shape[0], weight.shape[0]
    matrix = xp.reshape(weight, (groups, outputs // groups, -1))
    elements = batch * matrix.shape[2] * groups
    for size in windows.output_shape:
        elements *= size
    if elements <= COLUMN_ELEMENTS or windows.is_pointwise:
        result = xp.matmul(matrix, im2col(xp, x, windows, groups))
    else:
        result = _in_blocks(xp, matrix, window_view(xp, x, windows), elements)
    return xp.reshape(result, (batch, outputs, *windows.output_shape))


def _in_blocks(xp: Any, matrix: Array, view: Array, elements: int) -> Array:
    """GEMM of a (groups, M / groups, K) weight with a window view, some output rows of one sample at a time."""
    rank = (view.ndim - 2) // 2
    rows, groups, batch = view.shape[2 + rank], matrix.shape[0], view.shape[0]
    per_row = 1
    for size in view.shape[3 + rank :]:
        per_row *= size
    step = max(1, COLUMN_ELEMENTS * batch * rows // elements)
    result = xp.empty((batch, groups, matrix.shape[1], rows * per_row), dtype=matrix.dtype)
    lead = (slice(None),) * (1 + rank)
    for sample in range(batch):
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            block = columns(xp, view[(slice(sample, sample + 1), *lead, slice(start, stop), ...)], groups, rank)
            result[sample, :, :, start * per_row : stop * per_row] = xp.matmul(matrix, block)[0, ...]
    return result


def _depthwise(xp: Any, x: Array, weight: Array, windows: Windows) -> Array:
    """One input channel per group: a GEMV of a row of taps with each channel's columns, some channels at a time.

    The columns of a block stay in the processor's cache, which beats multiplying and adding tap by tap two- to threefold.
    """
    batch, channels, rank = x.shape[0], x.shape[1], len(windows.kernel_shape)
    view = window_view(xp, x, windows)
    per_channel = math.prod(view.shape[2:])
    multiplier = weight.shape[0] // channels
    matrix = xp.reshape(weight, (channels, multiplier, math.prod(windows.kernel_shape)))
    step = max(1, DEPTHWISE_ELEMENTS // max(1, per_channel))
    if batch * channels <= step:
        result = xp.matmul(matrix, columns(xp, view, channels, rank))
    else:
        result = xp.empty((batch, channels, multiplier, math.prod(windows.output_shape)), dtype=matrix.dtype)
        for sample in range(batch):
            for start in range(0, channels, step):
                part = slice(start, min(start + step, channels))
                block = view[(slice(sample, sample + 1), part, ...)]
                result[sample, part, ...] = xp.matmul(matrix[part, ...], columns(xp, block, block.shape[1], rank))[0, ...]
    return xp.reshape(result, (batch, channels * multiplier, *windows.output_shape))


def add_bias(xp: Any, y: Array, bias: Array | None) -> Array:
    """Add a per-channel bias (M,) in place to a fresh result (N, M, *spatial)."""
    if bias is not None:
        y += xp.reshape(bias, (1, -1, *(1 for _ in y.shape[2:])))
    return y
